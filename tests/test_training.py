"""The training package on a tiny random teacher, and the shipped draft's files."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from pydantic import ValidationError

transformers = pytest.importorskip("transformers")

from engine.design import load_design  # noqa: E402
from engine.training import distill  # noqa: E402
from engine.training.corpus import ChatFormat, CorpusBuilder, context_prompt, harvest_question  # noqa: E402
from engine.training.evaluate import Prompt, evaluate, held_out_agreement, walk  # noqa: E402
from engine.training.sampler import FrozenLlama  # noqa: E402
from engine.training.settings import Settings  # noqa: E402
from engine.training.target import load_draft  # noqa: E402

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "config/models/smollm2-135m-2layer"
TOPICS = {
    "families": {
        "news": {
            "tasks": ["Report {topic}.", "Tell {topic}."],
            "instructions": ["Sum up.", "Go on."],
        },
        "python": {"tasks": ["Code {topic}."], "instructions": ["Explain."]},
        "documentation": {"tasks": ["Document {topic}."], "instructions": ["Explain it."]},
    },
    "topics": ["tea", "rice"],
    "endings": ["", " Now."],
}


class ByteTokenizer:
    """Bytes as tokens 1 to 256, and one end-of-turn token."""

    def encode(self, text, add_special_tokens=False):
        ids = []
        for index, part in enumerate(text.split("<end>")):
            ids += ([499] if index else []) + [byte + 1 for byte in part.encode()]
        return ids

    def __call__(self, texts, add_special_tokens=False):
        return {"input_ids": [self.encode(text) for text in texts]}

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        return f"U:{messages[0]['content']}<end>A:"


@pytest.fixture(scope="module")
def target():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=500,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    return transformers.LlamaForCausalLM(config).requires_grad_(False).eval()


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    (folder / "topics.yaml").write_text(yaml.safe_dump(TOPICS))
    (folder / "disk/package").mkdir(parents=True)
    (folder / "disk/package/text.md").write_text("A line of a document.\n" * 40)
    values = yaml.safe_load((ROOT / "config/training.yaml").read_text())
    values["device"] = "cpu"
    shares = {0.0: 0.6, 0.7: 0.4}
    values["corpus"] |= {
        "topics": str(folder / "topics.yaml"),
        "batch_tokens": 640,
        "held_out": 0.2,
    }
    values["corpus"]["documents"] |= {
        "roots": [str(folder / "disk")], "site_packages": False, "package_share": 1.0, "length": 64
    }  # fmt: skip
    values["corpus"]["sources"] = [
        {
            "name": "dialogue",
            "kind": "dialogue",
            "length": 64,
            "batches": 2,
            "temperatures": {0.7: 1.0},
        },
        {"name": "topics", "kind": "topics", "length": 64, "batches": 2, "temperatures": shares},
        {"name": "answers", "kind": "answers", "length": 80, "batches": 1, "temperatures": shares},
        {
            "name": "contexts",
            "kind": "contexts",
            "length": 96,
            "new_tokens": 32,
            "batches": 1,
            "temperatures": shares,
        },
    ]
    values["training"] |= {
        "layers": [0, 2], "batch_tokens": 320, "steps": 24, "warmup_steps": 2,
        "learning_rate": 0.003, "chunk_tokens": 100, "checkpoint_steps": 12, "log_steps": 6,
    }  # fmt: skip
    return Settings.model_validate(values)


@pytest.fixture(scope="module")
def corpus(target, settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    frozen = FrozenLlama(target, torch.float32)
    manifest = CorpusBuilder(
        settings.corpus, settings.seed, frozen, ByteTokenizer(), folder
    ).build()
    assert set(manifest["sources"]) == {"documents", "dialogue", "topics", "answers", "contexts"}
    return folder


def new_distiller(target, settings, corpus):
    shards = distill.load_shards(corpus, settings.corpus.held_out)
    batches = distill.Batches(shards, settings.training.batch_tokens, settings.seed)
    return distill.Distiller(
        settings.training, target, batches, settings.seed, settings.training.steps
    )


def test_frozen_llama_is_the_target(target):
    frozen = FrozenLlama(target, torch.float32)
    tokens = torch.randint(0, 500, (3, 20))
    torch.testing.assert_close(
        frozen.hidden(tokens), target.model(tokens).last_hidden_state, rtol=1e-4, atol=1e-4
    )
    expected = target.generate(
        tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=12, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    greedy = frozen.sample(
        tokens, torch.tensor([20, 20, 20]), 32, torch.zeros(3), torch.Generator()
    )
    assert torch.equal(greedy, expected)


def test_sampling_follows_forced_tokens_and_temperature(target):
    frozen = FrozenLlama(target, torch.float32)
    forced = torch.randint(0, 500, (400, 6))
    forced[:] = forced[0]
    lengths = torch.tensor([4, 6] * 200)
    tokens = frozen.sample(
        forced, lengths, 7, torch.full((400,), 1.0), torch.Generator().manual_seed(1)
    )
    assert torch.equal(tokens[1::2, :6], forced[1::2])
    assert torch.equal(tokens[::2, :4], forced[::2, :4])
    p = target(forced[:1]).logits[0, -1].softmax(-1)
    seen = torch.bincount(tokens[1::2, 6], minlength=500) / 200
    assert (p - seen).abs().sum() / 2 < 0.5
    assert abs(float(p.max() - seen[p.argmax()])) < 0.15


def test_corpus_is_as_described(corpus, settings):
    chat = ChatFormat(ByteTokenizer())
    with np.load(corpus / "contexts-0000.npz") as stored:
        tokens, starts, temperatures = stored["tokens"], stored["starts"], stored["temperatures"]
    assert tokens.shape == (6, 96)
    assert (starts == 64).all()
    assert set(temperatures) <= {0.0, np.float16(0.7)}
    for row in tokens:
        assert row[: len(chat.opening)].tolist() == chat.opening
        assert row[64 - len(chat.closing) : 64].tolist() == chat.closing
    assert harvest_question([*chat.opening, 5, 6, 499, 7], chat) == [5, 6]
    with pytest.raises(ValueError, match="no room"):
        context_prompt({"news": [[3] * 50]}, TOPICS, chat, 8, random.Random(0))


def test_corpus_resumes_from_its_files(corpus, settings, target, tmp_path):
    for path in corpus.glob("*.npz"):
        if not path.name.startswith("contexts"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    CorpusBuilder(
        settings.corpus,
        settings.seed,
        FrozenLlama(target, torch.float32),
        ByteTokenizer(),
        tmp_path,
    ).build()
    with (
        np.load(corpus / "contexts-0000.npz") as first,
        np.load(tmp_path / "contexts-0000.npz") as second,
    ):
        assert np.array_equal(first["tokens"], second["tokens"])


def test_loss_gradient_is_autograd_s():
    torch.manual_seed(3)
    student, teacher = torch.randn(7, 5, requires_grad=True), torch.randn(7, 5)
    head, weights = torch.randn(11, 5), torch.rand(7)
    loss, _ = distill.HeadLoss.apply(
        student, teacher, head, weights, 0.5, 3, distill.soft_label_loss
    )
    (ours,) = torch.autograd.grad(loss, student)
    p = (teacher @ head.t()).softmax(-1)
    label = (p + 0.5 * torch.nn.functional.one_hot(p.argmax(-1), 11)) / 1.5
    expected = -(label * (student @ head.t()).log_softmax(-1)).sum(-1) @ weights / weights.sum()
    (theirs,) = torch.autograd.grad(expected, student)
    torch.testing.assert_close(ours, theirs)


def test_every_epoch_visits_each_row_once(corpus, settings):
    batches = distill.Batches(distill.load_shards(corpus, settings.corpus.held_out), 64, 0)
    for epoch in (1, 0):
        at = epoch * batches.per_epoch
        rows = [
            tuple(row.tolist())
            for step in range(at, at + batches.per_epoch)
            for row in batches[step][0]
        ]
        every = [tuple(row.tolist()) for shard in batches.shards for row in shard.tokens]
        assert sorted(rows) == sorted(every)


def test_resumed_run_is_bitwise_the_uninterrupted_one(target, settings, corpus, tmp_path):
    losses = []
    whole = new_distiller(target, settings, corpus)
    distill.train(whole, tmp_path / "whole.pt", log=losses.append)
    stopped = new_distiller(target, settings, corpus)
    distill.train(stopped, tmp_path / "part.pt", stop_after=11, log=str)
    resumed = new_distiller(target, settings, corpus)
    resumed.restore(tmp_path / "part.pt")
    assert resumed.position == 11
    distill.train(resumed, tmp_path / "part.pt", log=str)
    expected, found = (distill.trained_state(run.student) for run in (whole, resumed))
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    values = [float(line.split("loss ")[1].split(",")[0]) for line in losses]
    assert len(values) == 4
    assert values[-1] < 0.9 * values[0]
    distill.write_draft(resumed.student, "a" * 64, tmp_path / "draft")
    loaded = load_draft(tmp_path / "draft", target)
    name = "model.layers.1.mlp.up_proj.weight"
    assert torch.equal(loaded.state_dict()[name], found[name].bfloat16().float())
    assert torch.equal(loaded.lm_head.weight, target.lm_head.weight)


def test_a_draft_equal_to_the_target_agrees_everywhere(target, settings, corpus):
    frozen = FrozenLlama(target, torch.float32)
    prompts = [Prompt(40, family, list(range(1, 25))) for family in ("news", "python")]
    for score in evaluate(frozen, frozen, prompts, 16, 4):
        assert (score.agreement, score.acceptance, score.prompt_agreement, score.positions) == (
            1.0,
            1.0,
            1.0,
            16,
        )
    held = distill.load_shards(corpus, settings.corpus.held_out, take_held_out=True)
    assert set(held_out_agreement(frozen, frozen, held).values()) == {1.0}


def test_walk_counts_rounds_as_the_decoder_makes_them():
    assert walk([True] * 8, 4) == (8, 8)
    assert walk([False] * 3, 4) == (0, 3 + 2 + 1)
    # rounds: 1 1 0 | 1 1 1 1 | 0
    assert walk([True, True, False, True, True, True, True, False], 4) == (2 + 4, 4 + 4 + 1)


def test_unknown_keys_are_errors():
    values = yaml.safe_load((ROOT / "config/training.yaml").read_text())
    assert Settings.model_validate(values)
    values["training"]["learning_rat"] = 1
    with pytest.raises(ValidationError, match="learning_rat"):
        Settings.model_validate(values)


def test_shipped_draft_has_the_right_tensors():
    from safetensors import safe_open

    config = json.loads((SHIPPED / "config.json").read_text())
    width, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    shapes = {"model.norm.weight": [width]}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        query, keys = (
            config["num_attention_heads"] * head_dim,
            config["num_key_value_heads"] * head_dim,
        )
        shapes |= {
            prefix + "input_layernorm.weight": [width],
            prefix + "post_attention_layernorm.weight": [width],
            prefix + "self_attn.q_proj.weight": [query, width],
            prefix + "self_attn.k_proj.weight": [keys, width],
            prefix + "self_attn.v_proj.weight": [keys, width],
            prefix + "self_attn.o_proj.weight": [width, query],
            prefix + "mlp.gate_proj.weight": [inner, width],
            prefix + "mlp.up_proj.weight": [inner, width],
            prefix + "mlp.down_proj.weight": [width, inner],
        }
    assert config["num_hidden_layers"] == 2
    design = load_design(ROOT / Settings.read(ROOT / "config/training.yaml").design)
    assert config["shares_embeddings_with"] == design.models.target.sha256
    with safe_open(SHIPPED / "model.safetensors", "pt") as file:
        names = list(file.keys())
        assert {name: file.get_slice(name).get_shape() for name in names} == shapes
        assert {file.get_slice(name).get_dtype() for name in names} == {"BF16"}
        assert all(torch.isfinite(file.get_tensor(name)).all() for name in names)
