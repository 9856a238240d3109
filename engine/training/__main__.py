"""python -m engine.training build-corpus | train | evaluate --config FILE"""

import json
from pathlib import Path
from typing import Annotated

import torch
import typer
from tqdm import tqdm
from transformers import AutoTokenizer

from engine.design import load_design
from engine.models.fetching import fetch
from engine.training import evaluate as evaluation
from engine.training.corpus import ChatFormat, CorpusBuilder
from engine.training.distill import Batches, Distiller, load_shards, steps_in, train, write_draft
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


if __name__ == "__main__":
    app()
