# `snakemake --cores 1 smoke`: for a new machine or a new pair, before anything is measured.


rule climb_rung:
    input:
        before=get_rung_before,
        found=f"{RESULTS}/inputs.json",
        prompt=f"{RESULTS}/prompts/{SMOKE_CONTEXT}/{SMOKE_FAMILY}.json",
        models=f"{RESULTS}/models.json",
        code=get_files("evidence/smoke.py"),
    output:
        told=f"{RESULTS}/smoke/{{rung}}.json",
    log:
        f"{LOGS}/smoke/{{rung}}.log",
    wildcard_constraints:
        rung="|".join(SMOKE_RUNGS),
    conda:
        "../../envs/engine.yaml"
    threads: get_all_cores
    resources:
        gpu=1,
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
    shell:
        "python -m engine climb-rung --design {params.file:q} --rung {wildcards.rung:q}"
        " --models {input.models:q} --prompt {input.prompt:q} --output {output.told:q}"
        " 2>&1 | tee {log:q}"


rule smoke:
    input:
        top=f"{RESULTS}/smoke/{SMOKE_RUNGS[-1]}.json",
