rule freeze_design:
    output:
        design=f"{RESULTS}/design.json",
        frozen=update(f"{RESULTS}/frozen.json"),
    log:
        f"{LOGS}/freeze_design.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    params:
        design=DESIGN.to_json(),
        overrides=json.dumps(get_overrides()),
    shell:
        "python -m engine freeze-design --resolved {params.design:q}"
        " --overrides {params.overrides:q} --design {output.design:q}"
        " --output {output.frozen:q} 2>&1 | tee {log:q}"


rule fetch_model:
    input:
        design=ancient(f"{RESULTS}/design.json"),
    output:
        models=f"{RESULTS}/models.json",
    log:
        f"{LOGS}/fetch_model.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    params:
        models=DESIGN.models.model_dump_json(),
    shell:
        "python -m engine fetch-model --design {input.design:q}"
        " --output {output.models:q} 2>&1 | tee {log:q}"


rule build_prompts:
    input:
        texts=get_source_texts,
        models=f"{RESULTS}/models.json",
        design=ancient(f"{RESULTS}/design.json"),
    output:
        prompt=f"{RESULTS}/prompts/{{context}}/{{family}}.json",
    log:
        f"{LOGS}/build_prompts/{{context}}/{{family}}.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    params:
        prompts=DESIGN.prompts.model_dump_json(),
        new_tokens=DESIGN.new_tokens,
        seed=DESIGN.seed,
        format=1,
    shell:
        "python -m engine build-prompt --design {input.design:q}"
        " --models {input.models:q} --context {wildcards.context:q}"
        " --family {wildcards.family:q} --output {output.prompt:q} 2>&1 | tee {log:q}"


rule check_inputs:
    input:
        prompts=get_prompt_files(),
        models=f"{RESULTS}/models.json",
        design=f"{RESULTS}/design.json",
    output:
        found=f"{RESULTS}/inputs.json",
    log:
        f"{LOGS}/check_inputs.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    shell:
        "python -m engine check-inputs --design {input.design:q}"
        " --models {input.models:q} --output {output.found:q} 2>&1 | tee {log:q}"


rule decode_reference:
    input:
        prompts=get_prompt_files(),
        models=ancient(f"{RESULTS}/models.json"),
        found=ancient(f"{RESULTS}/inputs.json"),
        design=ancient(f"{RESULTS}/design.json"),
    output:
        reference=f"{RESULTS}/reference.parquet",
    log:
        f"{LOGS}/decode_reference.log",
    priority: BEFORE_CELLS
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        baselines=[DESIGN.modes[name].model_dump_json() for name in DESIGN.baselines],
        new_tokens=DESIGN.new_tokens,
        dtype=DESIGN.dtype,
        device=DESIGN.device,
    shell:
        "python -m engine decode-reference --design {input.design:q}"
        " --models {input.models:q} --output {output.reference:q} 2>&1 | tee {log:q}"
