rule time_components:
    input:
        core=get_component_core,
        ranking=get_ranking(DESIGN.draft_vocabulary),
        prompt=f"{RESULTS}/prompts/{{context}}/{{family}}.json",
        models=f"{RESULTS}/models.json",
    output:
        components=f"{RESULTS}/components/{{context}}/{{family}}/{{mode}}.parquet",
    log:
        f"{LOGS}/time_components/{{context}}/{{family}}/{{mode}}.log",
    priority: get_component_priority
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        file=DESIGN_FILE,
        cell=get_component_cell,
    shell:
        "python -m engine time-components --design {params.file:q}"
        " --context {wildcards.context:q} --family {wildcards.family:q}"
        " --mode {wildcards.mode:q} --models {input.models:q} --prompt {input.prompt:q}"
        " --output {output.components:q} 2>&1 | tee {log:q}"


rule trace_acceptance:
    input:
        prompts=get_prompt_files(),
        models=f"{RESULTS}/models.json",
        reference=f"{RESULTS}/reference.parquet",
        code=get_decoding_core("evidence/agreement.py"),
        ranking=get_ranking(DESIGN.draft_vocabulary),
    output:
        trace=f"{RESULTS}/trace.parquet",
    log:
        f"{LOGS}/trace_acceptance.log",
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        file=DESIGN_FILE,
        dtype=DESIGN.dtype,
        device=DESIGN.device,
        cpu_threads=DESIGN.cpu_threads,
        draft_vocabulary=DESIGN.draft_vocabulary,
    shell:
        "python -m engine trace-acceptance --design {params.file:q}"
        " --models {input.models:q} --reference {input.reference:q}"
        " --output {output.trace:q} 2>&1 | tee {log:q}"


rule check_designed:
    input:
        rows=f"{RESULTS}/rows.parquet",
        trace=f"{RESULTS}/trace.parquet",
        code=get_modules("analysis"),
    output:
        designed=f"{RESULTS}/designed.parquet",
    log:
        f"{LOGS}/check_designed.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
    shell:
        "python -m engine check-designed --design {params.file:q} --rows {input.rows:q}"
        " --trace {input.trace:q} --output {output.designed:q} 2>&1 | tee {log:q}"


rule explain_cost:
    input:
        rows=f"{RESULTS}/rows.parquet",
        ratios=f"{RESULTS}/ratios.parquet",
        code=get_modules("analysis"),
    output:
        waterfall=f"{RESULTS}/waterfall.parquet",
        steps=f"{RESULTS}/steps.parquet",
    log:
        f"{LOGS}/explain_cost.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
    shell:
        "python -m engine explain-cost --design {params.file:q} --rows {input.rows:q}"
        " --ratios {input.ratios:q} --waterfall {output.waterfall:q}"
        " --output {output.steps:q} 2>&1 | tee {log:q}"


rule judge_claims:
    input:
        rows=f"{RESULTS}/rows.parquet",
        ratios=f"{RESULTS}/ratios.parquet",
        gates=f"{RESULTS}/gates.parquet",
        claims="config/claims.csv",
        code=get_modules("analysis"),
    output:
        claims=f"{RESULTS}/claims.parquet",
    log:
        f"{LOGS}/judge_claims.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
    shell:
        "python -m engine judge-claims --design {params.file:q} --rows {input.rows:q}"
        " --ratios {input.ratios:q} --gates {input.gates:q} --output {output.claims:q}"
        " 2>&1 | tee {log:q}"


rule judge_chain:
    input:
        rows=f"{RESULTS}/rows.parquet",
        ratios=f"{RESULTS}/ratios.parquet",
        tokens=f"{RESULTS}/tokens.parquet",
        trace=get_trace_file(),
        published="config/published.csv",
        code=get_modules("analysis"),
    output:
        chain=f"{RESULTS}/chain.parquet",
    log:
        f"{LOGS}/judge_chain.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
        trace=" ".join(f"--trace {file}" for file in get_trace_file()),
    shell:
        "python -m engine judge-chain --design {params.file:q} --rows {input.rows:q}"
        " --ratios {input.ratios:q} --tokens {input.tokens:q}"
        " --published {input.published:q} {params.trace} --output {output.chain:q}"
        " 2>&1 | tee {log:q}"


rule predict_speedup:
    input:
        trace=f"{RESULTS}/trace.parquet",
        components=get_component_files(),
        verdict=f"{REPORTS}/verdict.json",
        code=get_modules("analysis"),
    output:
        predicted=f"{RESULTS}/predicted.parquet",
        compared=f"{RESULTS}/compared.parquet",
    log:
        f"{LOGS}/predict_speedup.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
    shell:
        "python -m engine predict-speedup --design {params.file:q} --trace {input.trace:q}"
        " --verdict {input.verdict:q} --predicted {output.predicted:q}"
        " --output {output.compared:q} 2>&1 | tee {log:q}"
