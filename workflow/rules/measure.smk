rule time_cell:
    input:
        core=get_cell_core,
        ranking=get_cell_ranking,
        prompt=f"{RESULTS}/prompts/{{context}}/{{family}}.json",
        models=f"{RESULTS}/models.json",
    output:
        rows=f"{RESULTS}/timing/{{context}}/{{family}}/{{mode}}/r{{replicate}}.parquet",
    log:
        f"{LOGS}/time_cell/{{context}}/{{family}}/{{mode}}/r{{replicate}}.log",
    priority: get_cell_priority
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        file=DESIGN_FILE,
        cell=get_resolved_cell,
    shell:
        "python -m engine time-cell --design {params.file:q}"
        " --context {wildcards.context:q} --family {wildcards.family:q}"
        " --mode {wildcards.mode:q} --replicate {wildcards.replicate:q}"
        " --models {input.models:q} --prompt {input.prompt:q}"
        " --output {output.rows:q} 2>&1 | tee {log:q}"
