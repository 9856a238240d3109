# No rule below has `ancient` inputs: where an upstream job reruns, Snakemake no longer looks at
# the parameters of the jobs behind it, and an `ancient` edge does not pass the rerun on, so a
# changed cell would keep its old rows. What must only come first, comes first by priority.


rule freeze_design:
    output:
        frozen=update(f"{RESULTS}/frozen.json"),
    log:
        f"{LOGS}/freeze_design.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
        overrides=json.dumps(get_overrides()),
    shell:
        "python -m engine freeze-design --design {params.file:q}"
        " --overrides {params.overrides:q} --output {output.frozen:q} 2>&1 | tee {log:q}"


rule fetch_model:
    input:
        files=get_model_files,
    output:
        models=f"{RESULTS}/models.json",
    log:
        f"{LOGS}/fetch_model.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    params:
        file=DESIGN_FILE,
        models=DESIGN.models.model_dump_json(),
        # Raised by hand when the format or the making of the output changes.
        format=1,
    shell:
        "python -m engine fetch-model --design {params.file:q}"
        " --output {output.models:q} 2>&1 | tee {log:q}"


rule build_prompts:
    input:
        texts=get_source_texts,
        models=f"{RESULTS}/models.json",
    output:
        prompt=f"{RESULTS}/prompts/{{context}}/{{family}}.json",
    log:
        f"{LOGS}/build_prompts/{{context}}/{{family}}.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    params:
        file=DESIGN_FILE,
        prompts=DESIGN.prompts.model_dump_json(),
        new_tokens=DESIGN.new_tokens,
        seed=DESIGN.seed,
        # Raised by hand when the format or the making of the output changes.
        format=1,
    shell:
        "python -m engine build-prompt --design {params.file:q}"
        " --models {input.models:q} --context {wildcards.context:q}"
        " --family {wildcards.family:q} --output {output.prompt:q} 2>&1 | tee {log:q}"


rule check_inputs:
    input:
        prompts=get_prompt_files(),
        models=f"{RESULTS}/models.json",
    output:
        found=f"{RESULTS}/inputs.json",
    log:
        f"{LOGS}/check_inputs.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
    shell:
        "python -m engine check-inputs --design {params.file:q}"
        " --models {input.models:q} --output {output.found:q} 2>&1 | tee {log:q}"


rule decode_reference:
    input:
        prompts=get_prompt_files(),
        models=f"{RESULTS}/models.json",
        found=f"{RESULTS}/inputs.json",
        code=get_decoding_core("evidence/reference.py"),
    output:
        reference=f"{RESULTS}/reference.parquet",
    log:
        f"{LOGS}/decode_reference.log",
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        file=DESIGN_FILE,
        baselines=[DESIGN.modes[name].model_dump_json() for name in DESIGN.baselines],
        seed=DESIGN.seed,
        new_tokens=DESIGN.new_tokens,
        dtype=DESIGN.dtype,
        device=DESIGN.device,
        prefill_chunk=DESIGN.prefill_chunk,
        cpu_threads=DESIGN.cpu_threads,
    shell:
        "python -m engine decode-reference --design {params.file:q}"
        " --models {input.models:q} --output {output.reference:q} 2>&1 | tee {log:q}"
