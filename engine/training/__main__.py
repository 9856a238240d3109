"""python -m engine.training build-corpus | train | evaluate | rank-tokens --config FILE"""

import json
from pathlib import Path
from typing import Annotated

import torch
import typer
from tqdm import tqdm
from transformers import AutoTokenizer

from engine.design import load_design
from engine.models.fetching import fetch
from engine.models.tokenizers import vocabulary_size
from engine.training import evaluate as evaluation
from engine.training import rank
from engine.training.corpus import ChatFormat, CorpusBuilder
from engine.training.distill import Batches, Distiller, load_shards, steps_in, train, write_draft
from engine.training.documents import find_documents
from engine.training.sampler import FrozenLlama
from engine.training.settings import Settings
from engine.training.target import load_draft, load_target

ROOT = Path(__file__).parents[2]

app = typer.Typer(add_completion=False, help="Distil and judge the draft model.")
Config = Annotated[Path, typer.Option(help="training settings, YAML")]
Folder = Annotated[Path, typer.Option(help="corpus folder")]
Draft = Annotated[Path, typer.Option(help="draft folder")]


def device_of(settings: Settings) -> str:
    if settings.device != "auto":
        return settings.device
    return "cuda" if torch.cuda.is_available() else "cpu"


class Setup:
    """What every subcommand starts from: settings, design, and the target on its device."""

    def __init__(self, config: Path):
        self.settings = Settings.read(config)
        self.design = load_design(self.settings.design)
        source = self.design.models.target
        fetched = fetch(source, ROOT)
        self.target_sha256 = getattr(source, "sha256", fetched.sha256)
        self.tokenizer = AutoTokenizer.from_pretrained(fetched.folder)
        self.target = load_target(Path(fetched.folder), device_of(self.settings))


@app.command()
def build_corpus(config: Config, corpus: Folder) -> None:
    """Write the corpus, batch by batch; a second call goes on where the first was stopped."""
    setup = Setup(config)
    dtype = torch.bfloat16 if setup.target.device.type == "cuda" else torch.float32
    builder = CorpusBuilder(
        setup.settings.corpus,
        setup.settings.seed,
        FrozenLlama(setup.target, dtype),
        setup.tokenizer,
        corpus,
    )
    typer.echo(json.dumps(builder.build()["sources"], indent=1))


@app.command(name="train")
def train_command(
    config: Config,
    corpus: Folder,
    draft: Draft,
    checkpoint: Annotated[Path, typer.Option(help="file to save to and to go on from")],
) -> None:
    """Train the draft; a second call goes on from the checkpoint."""
    setup = Setup(config)
    settings = setup.settings
    shards = load_shards(corpus, settings.corpus.held_out)
    batches = Batches(shards, settings.training.batch_tokens, settings.seed)

    def distiller(steps: int) -> Distiller:
        return Distiller(settings.training, setup.target, batches, settings.seed, steps)

    steps = settings.training.steps
    if steps is None and not checkpoint.exists():
        if settings.training.seconds is None:
            raise typer.BadParameter("training needs `steps` or `seconds`")
        steps = steps_in(distiller(10**9), settings.training.seconds)
    run = distiller(steps or 1)
    if checkpoint.exists():
        run.restore(checkpoint)
    train(run, checkpoint)
    write_draft(run.student, setup.target_sha256, draft)


@app.command(name="evaluate")
def evaluate_command(
    config: Config,
    draft: Draft,
    output: Annotated[Path, typer.Option(help="CSV, one row a context and family")],
    prompts: Annotated[
        Path | None,
        typer.Option(
            help='JSON lines {"context": 256, "family": "news", "tokens": []} to ask instead'
        ),
    ] = None,
) -> None:
    """Agreement and acceptance in fp32 along the target's greedy continuation of each prompt."""
    setup = Setup(config)
    settings = setup.settings.evaluation
    student = load_draft(draft, setup.target)
    if prompts is None:
        turn = ChatFormat(setup.tokenizer).turn
        asked = evaluation.design_prompts(setup.design, settings, ROOT, setup.tokenizer, turn)
    else:
        asked = [evaluation.Prompt(**json.loads(line)) for line in prompts.read_text().splitlines()]
    scores = evaluation.evaluate(
        FrozenLlama(student, torch.float32),
        FrozenLlama(setup.target, torch.float32),
        tqdm(asked, unit="prompt"),
        settings.new_tokens,
        settings.k,
    )
    evaluation.write_scores(scores, output)


@app.command()
def rank_tokens(
    config: Config,
    draft: Draft,
    size: Annotated[int, typer.Option(help="tokens to keep in the list")] = 16384,
) -> None:
    """Write the tokens that a text most likely needs into the draft's folder."""
    settings = Settings.read(config)
    folder = Path(fetch(load_design(settings.design).models.target, ROOT).folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    documents = find_documents(settings.corpus.documents, settings.seed)
    topics = (ROOT / settings.corpus.topics).read_text(encoding="utf-8")
    texts = [*(document.text for document in documents), topics]
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    first = rank.indispensable(folder, tokenizer.all_special_ids)
    ranking = rank.rank_tokens(encoded, first, vocabulary_size(folder))[:size]
    kept, counted = set(ranking), sum(map(len, encoded))
    covered = sum(token in kept for text in encoded for token in text) / counted
    provenance = [
        f"The {size} token ids of {folder.name} that a text most likely needs, one a line.",
        f"Half the weight: frequency in {counted} tokens of {len(documents)} text files (source, "
        "documentation and data",
        "of Python packages, /usr/share/doc), found by the corpus rule, and "
        f"{settings.corpus.topics}; they hold {covered:.1%} of them.",
        "The other half: the tokenizer's own order, as a Zipf law.",
        f"The first {len(first)} are special tokens and single bytes. config/prompts was not read.",
        f"Made by: python -m engine.training rank-tokens --config {config} --draft {draft}",
    ]
    rank.write_ranking(ranking, provenance, draft)
    typer.echo("\n".join(provenance))


if __name__ == "__main__":
    app()
