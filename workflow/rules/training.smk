# Off by default: nothing depends on these rules, since the draft they make is shipped in
# config/models. `snakemake --cores 1 evaluate_draft` makes and judges another one.


rule build_corpus:
    input:
        config="config/training.yaml",
        topics="config/training-topics.yaml",
        design="config/config.yaml",
    output:
        manifest="results/training/corpus/manifest.json",
    log:
        "logs/training/build_corpus.log",
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        corpus=subpath(output.manifest, parent=True),
    shell:
        "python -m engine.training build-corpus --config {input.config:q}"
        " --corpus {params.corpus:q} 2>&1 | tee {log:q}"


rule train_draft:
    input:
        config="config/training.yaml",
        manifest="results/training/corpus/manifest.json",
    output:
        weights="results/training/draft/model.safetensors",
        config="results/training/draft/config.json",
    log:
        "logs/training/train_draft.log",
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        corpus=subpath(input.manifest, parent=True),
        draft=subpath(output.weights, parent=True),
        # No output of the rule, because Snakemake deletes outputs of a run that was stopped.
        checkpoint="results/training/checkpoint.pt",
    shell:
        "python -m engine.training train --config {input.config:q} --corpus {params.corpus:q}"
        " --draft {params.draft:q} --checkpoint {params.checkpoint:q} 2>&1 | tee {log:q}"


rule evaluate_draft:
    input:
        config="config/training.yaml",
        weights="results/training/draft/model.safetensors",
    output:
        table="results/training/evaluation.csv",
    log:
        "logs/training/evaluate_draft.log",
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        draft=subpath(input.weights, parent=True),
    shell:
        "python -m engine.training evaluate --config {input.config:q} --draft {params.draft:q}"
        " --output {output.table:q} 2>&1 | tee {log:q}"
