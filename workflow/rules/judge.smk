rule check_timing:
    input:
        cells=get_cell_files(),
        code=get_modules("analysis"),
    output:
        rows=f"{RESULTS}/rows.parquet",
        gates=f"{RESULTS}/gates.parquet",
    log:
        f"{LOGS}/check_timing.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
        config_argument=get_config_argument(),
    shell:
        "python -m engine check-timing --design {params.file:q}"
        " --config-argument={params.config_argument:q} --rows {output.rows:q}"
        " --output {output.gates:q} 2>&1 | tee {log:q}"


rule check_tokens:
    input:
        rows=f"{RESULTS}/rows.parquet",
        reference=f"{RESULTS}/reference.parquet",
        prompts=get_prompt_files(),
        models=f"{RESULTS}/models.json",
        code=get_modules("analysis", "evidence"),
    output:
        tokens=f"{RESULTS}/tokens.parquet",
    log:
        f"{LOGS}/check_tokens.log",
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
    shell:
        "python -m engine check-tokens --design {params.file:q}"
        " --models {input.models:q} --rows {input.rows:q}"
        " --reference {input.reference:q} --output {output.tokens:q} 2>&1 | tee {log:q}"


rule check_distribution:
    input:
        prompts=get_prompt_files(),
        models=f"{RESULTS}/models.json",
        code=[
            *get_files("evidence/distribution.py", "analysis/distribution.py"),
            *get_drawing_core(),
        ],
    output:
        distribution=f"{RESULTS}/distribution.parquet",
    log:
        f"{LOGS}/check_distribution.log",
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        file=DESIGN_FILE,
        modes=[DESIGN.modes[name].model_dump_json() for name in DESIGN.drawing_modes()],
        seed=DESIGN.seed,
        dtype=DESIGN.dtype,
        device=DESIGN.device,
        cpu_threads=DESIGN.cpu_threads,
    shell:
        "python -m engine check-distribution --design {params.file:q}"
        " --models {input.models:q} --output {output.distribution:q} 2>&1 | tee {log:q}"


rule estimate_speedup:
    input:
        rows=f"{RESULTS}/rows.parquet",
        gates=f"{RESULTS}/gates.parquet",
        tokens=f"{RESULTS}/tokens.parquet",
        frozen=f"{RESULTS}/frozen.json",
        distribution=get_distribution_file(),
        code=get_modules("analysis"),
    output:
        ratios=f"{RESULTS}/ratios.parquet",
        verdict=report(f"{REPORTS}/verdict.json", caption="../report/verdict.rst"),
    log:
        f"{LOGS}/estimate_speedup.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
        distribution=" ".join(f"--distribution {file}" for file in get_distribution_file()),
    shell:
        "python -m engine estimate-speedup --design {params.file:q}"
        " --rows {input.rows:q} --gates {input.gates:q} --tokens {input.tokens:q}"
        " --frozen {input.frozen:q} --ratios {output.ratios:q}"
        " {params.distribution} --output {output.verdict:q} 2>&1 | tee {log:q}"


rule verdict_strict:
    input:
        verdict=f"{REPORTS}/verdict.json",
    log:
        f"{LOGS}/verdict_strict.log",
    conda:
        "../../envs/analysis.yaml"
    shell:
        "python -m engine require-verdict --verdict {input.verdict:q} 2>&1 | tee {log:q}"
