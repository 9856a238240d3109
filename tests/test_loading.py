"""From folders to decoders: what loads, and the sentence for what does not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checkpoints import VOCABULARY, save_checkpoint, tiny_checkpoint, tiny_model, tiny_pair
from safetensors.torch import load_file, save_file

from engine.models.fetching import fetch
from engine.models.folder import SINGLE, FetchedModel
from engine.models.loading import ModelError, load_decoder
from engine.models.tokenizers import compare_tokenizers, vocabulary_size
from engine.pair import FolderModel, StudentModel


def fetch_folder(folder: Path) -> FetchedModel:
    return fetch(FolderModel(source="folder", path=folder.name), folder.parent)


def load(folder: Path, dtype=torch.float32, **how):
    return load_decoder(fetch_folder(folder), "cpu", dtype, **how)


def edit_json(path: Path, change) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def edit_tensors(folder: Path, change) -> None:
    tensors = load_file(folder / SINGLE)
    change(tensors)
    save_file(tensors, folder / SINGLE)


@torch.inference_mode()
def logits_of(model) -> torch.Tensor:
    tokens = torch.arange(5, 45)
    return model.forward(tokens, model.new_cache(40), rows=40)


@pytest.fixture
def folder(tmp_path):
    return tiny_checkpoint(tmp_path / "model", "llama", tie_word_embeddings=True)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
@torch.inference_mode()
def test_a_folder_loads_to_the_logits_of_transformers(family, tmp_path):
    model = tiny_model(family)
    ours = load(save_checkpoint(model, tmp_path / family))
    expected = model(torch.arange(5, 45)[None]).logits[0]
    torch.testing.assert_close(logits_of(ours), expected, atol=1e-4, rtol=0)
    assert ours.vocabulary == VOCABULARY


def test_shards_load_like_one_file(tmp_path):
    model = tiny_model("qwen2")
    whole = save_checkpoint(model, tmp_path / "whole")
    shards = save_checkpoint(model, tmp_path / "shards", max_shard_size="60KB")
    assert len(list(shards.glob("*.safetensors"))) > 2
    assert torch.equal(logits_of(load(whole)), logits_of(load(shards)))
    assert fetch_folder(whole).sha256 != fetch_folder(shards).sha256

    victim = sorted(shards.glob("*.safetensors"))[1]
    victim.unlink()
    with pytest.raises(ModelError, match=f"lacks {victim.name}"):
        load(shards)


def test_weights_are_owned_so_that_no_file_stays_mapped(folder):
    model = load(folder)
    assert str(folder) not in Path("/proc/self/maps").read_text()
    assert model.weights_bytes == sum(t.nbytes for t in load_file(folder / SINGLE).values())


def test_float_formats_are_converted(folder):
    assert load(folder, torch.bfloat16).head.dtype == torch.bfloat16


def test_a_student_shares_the_targets_tensors(folder, tmp_path):
    path = tmp_path / "student"
    model = tiny_model("llama", seed=3, num_hidden_layers=1, tie_word_embeddings=True)
    save_checkpoint(model.to(torch.bfloat16), path)
    edit_tensors(path, lambda tensors: tensors.pop("model.embed_tokens.weight"))
    fetched = fetch(StudentModel(source="student", path=str(path)), tmp_path)
    assert fetched.vocabulary is None
    target = load(folder)
    student = load_decoder(fetched, "cpu", torch.float32, target, target.vocabulary)
    assert student.head is target.head
    assert logits_of(student).shape == (40, VOCABULARY)

    with pytest.raises(ModelError, match="only beside a target"):
        load_decoder(fetched, "cpu", torch.float32)
    wide = load(tiny_checkpoint(tmp_path / "wide", "llama", hidden_size=80))
    with pytest.raises(ModelError, match="hidden size 64, but the target's embeddings have 80"):
        load_decoder(fetched, "cpu", torch.float32, wide)


def test_differently_padded_models_judge_the_same_tokens(tmp_path):
    target = tiny_checkpoint(tmp_path / "target", "qwen2", vocab_size=VOCABULARY + 36)
    draft = tiny_checkpoint(tmp_path / "draft", "qwen2", vocab_size=VOCABULARY + 164)
    compare_tokenizers(target, draft)
    assert load(target).vocabulary == load(draft).vocabulary == VOCABULARY
    assert logits_of(load(draft, vocabulary=VOCABULARY)).shape[1] == VOCABULARY


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path):
    short = tiny_checkpoint(tmp_path / "short", "llama", vocab_size=VOCABULARY - 1)
    with pytest.raises(ModelError, match=r"300 token ids.*embeddings for 299"):
        load(short)


DAMAGE = [
    (lambda t: t.pop("model.norm.weight"), "lacks the tensor model.norm.weight"),
    (lambda t: t.update(extra=torch.ones(2)), "holds the tensor extra, which"),
    (
        lambda t: t.update({"model.norm.weight": torch.ones(3)}),
        r"model.norm.weight of .* has shape \[3\], but its config.json asks for \[64\]",
    ),
]


@pytest.mark.parametrize(("damage", "sentence"), DAMAGE)
def test_tensors_that_do_not_fit_are_named(folder, damage, sentence):
    edit_tensors(folder, damage)
    with pytest.raises(ModelError, match=sentence):
        load(folder)


def test_stored_copies_without_use_are_passed_over(folder):
    before = logits_of(load(folder))
    extra = {"lm_head.weight": torch.ones(VOCABULARY, 64)}
    extra["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    edit_tensors(folder, lambda tensors: tensors.update(extra))
    assert torch.equal(logits_of(load(folder)), before)


def test_truncated_weights_are_noticed(folder):
    path = folder / SINGLE
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelError, match="is damaged"):
        load(folder)


@pytest.mark.parametrize(
    ("present", "sentence"),
    [
        (["pytorch_model.bin"], "holds only pytorch_model.bin: .* safetensors alone"),
        (["adapter_config.json", "adapter_model.safetensors"], "holds an adapter"),
        (["model.Q4.gguf"], "holds only model.Q4.gguf"),
        ([], "neither model.safetensors nor"),
    ],
)
def test_folders_without_safetensors_say_what_they_hold(folder, present, sentence):
    (folder / SINGLE).unlink()
    for name in present:
        (folder / name).write_bytes(b"{}")
    with pytest.raises(ModelError, match=sentence):
        fetch_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_and_broken_files_are_named(folder, name):
    (folder / name).write_text("{")
    with pytest.raises(ModelError, match=f"{name} is not valid JSON"):
        fetch_folder(folder)
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"lacks {name}"):
        fetch_folder(folder)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ModelError, match="nowhere"):
        fetch(FolderModel(source="folder", path="nowhere"), tmp_path)


def test_the_first_differing_token_is_named(tmp_path):
    target, draft = tiny_pair(tmp_path)
    compare_tokenizers(target, draft)

    def swap(tokenizer):
        words = tokenizer["model"]["vocab"]
        one, other = (next(w for w, i in words.items() if i == k) for k in (70, 90))
        words[one], words[other] = 90, 70

    edit_json(draft / "tokenizer.json", swap)
    with pytest.raises(ModelError, match=r"id 70 is 'd' in .*target and 'x' in .*draft"):
        compare_tokenizers(target, draft)


def test_added_tokens_count_and_are_compared(tmp_path):
    target, draft = tiny_pair(tmp_path)
    added = {"id": 305, "content": "<|tool|>"}
    edit_json(draft / "tokenizer.json", lambda t: t["added_tokens"].append(added))
    assert vocabulary_size(draft) == 306
    with pytest.raises(ModelError, match=r"id 305 is no token in .*'<\|tool\|>' in"):
        compare_tokenizers(target, draft)


def test_loading_imports_no_slow_library(folder):
    script = (
        "import sys, torch; from engine.models.loading import FetchedModel, load_decoder;"
        f"load_decoder(FetchedModel('m', {str(folder)!r}, '', 300), 'cpu', torch.float32);"
        "print([m for m in ('transformers', 'tokenizers', 'huggingface_hub') if m in sys.modules])"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
