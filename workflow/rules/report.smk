rule plot_confirmatory:
    input:
        ratios=f"{RESULTS}/ratios.parquet",
        verdict=f"{REPORTS}/verdict.json",
        published="config/published.csv",
        code=get_modules("figures"),
    output:
        svg=report(f"{REPORTS}/figures/confirmatory.svg", caption="../report/confirmatory.rst"),
        wide=f"{REPORTS}/figures/confirmatory-wide.svg",
        png=f"{REPORTS}/figures/confirmatory.png",
    log:
        f"{LOGS}/plot_confirmatory.log",
    conda:
        "../../envs/analysis.yaml"
    shell:
        "python -m engine plot-confirmatory --ratios {input.ratios:q}"
        " --verdict {input.verdict:q} --published {input.published:q}"
        " --svg {output.svg:q} --wide {output.wide:q} --png {output.png:q} 2>&1 | tee {log:q}"


rule plot_acceptance:
    input:
        ratios=f"{RESULTS}/ratios.parquet",
        verdict=f"{REPORTS}/verdict.json",
        code=get_modules("figures"),
    output:
        svg=report(f"{REPORTS}/figures/acceptance.svg", caption="../report/acceptance.rst"),
        png=f"{REPORTS}/figures/acceptance.png",
    log:
        f"{LOGS}/plot_acceptance.log",
    conda:
        "../../envs/analysis.yaml"
    shell:
        "python -m engine plot-acceptance --ratios {input.ratios:q}"
        " --verdict {input.verdict:q} --svg {output.svg:q} --png {output.png:q}"
        " 2>&1 | tee {log:q}"


rule plot_mechanism:
    input:
        tables=get_figure_tables,
        verdict=f"{REPORTS}/verdict.json",
        published="config/published.csv",
        code=get_modules("figures"),
    output:
        svg=report(f"{REPORTS}/figures/{{figure}}.svg", caption="../report/mechanism.rst"),
        png=f"{REPORTS}/figures/{{figure}}.png",
        said=f"{REPORTS}/figures/{{figure}}.json",
    log:
        f"{LOGS}/plot_mechanism/{{figure}}.log",
    wildcard_constraints:
        figure="|".join(entry.name for entry in catalogue.wanted(DESIGN)) or "none",
    conda:
        "../../envs/analysis.yaml"
    params:
        caption=get_figure_caption,
    shell:
        "python -m engine plot-mechanism --figure {wildcards.figure:q}"
        " --verdict {input.verdict:q} --published {input.published:q} --svg {output.svg:q}"
        " --png {output.png:q} --output {output.said:q} {input.tables:q} 2>&1 | tee {log:q}"


# A figure of a phase that only a GPU has, on a machine without one: see engine/references.
rule plot_reference:
    input:
        record=get_lent_record,
        files=get_lent_files,
        published="config/published.csv",
        code=get_modules("figures", "references", "analysis"),
        # What the rows' hashes are held against: an edit there makes them an earlier version's.
        engine=get_modules("decoding", "kernels", "measure", "models"),
    output:
        svg=report(f"{REPORTS}/figures/{{figure}}.svg", caption="../report/mechanism.rst"),
        png=f"{REPORTS}/figures/{{figure}}.png",
        said=f"{REPORTS}/figures/{{figure}}.json",
    log:
        f"{LOGS}/plot_reference/{{figure}}.log",
    wildcard_constraints:
        figure="|".join(LENT) or "none",
    conda:
        "../../envs/analysis.yaml"
    params:
        caption=get_figure_caption,
    shell:
        "python -m engine plot-reference --figure {wildcards.figure:q}"
        " --reference {input.record:q} --published {input.published:q} --svg {output.svg:q}"
        " --png {output.png:q} --output {output.said:q} 2>&1 | tee {log:q}"


rule render_report:
    input:
        ratios=f"{RESULTS}/ratios.parquet",
        gates=f"{RESULTS}/gates.parquet",
        tokens=f"{RESULTS}/tokens.parquet",
        verdict=f"{REPORTS}/verdict.json",
        published="config/published.csv",
        confirmatory=f"{REPORTS}/figures/confirmatory.svg",
        confirmatory_wide=f"{REPORTS}/figures/confirmatory-wide.svg",
        acceptance=f"{REPORTS}/figures/acceptance.svg",
        mechanism=[*get_figures("svg"), *get_lent_figures("svg")],
        said=[*get_figures("json"), *get_lent_figures("json")],
        chain=f"{RESULTS}/chain.parquet",
        references=get_lent_chains(),
        code=get_modules("report", "figures", "references"),
    output:
        html=report(f"{REPORTS}/report.html", caption="../report/verdict.rst"),
    log:
        f"{LOGS}/render_report.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        file=DESIGN_FILE,
        design=DESIGN.sha256,
        references=" ".join(f"--reference {file}" for file in get_lent_chains()),
    shell:
        "python -m engine render-report --design {params.file:q} --ratios {input.ratios:q}"
        " --gates {input.gates:q} --tokens {input.tokens:q} --verdict {input.verdict:q}"
        " --published {input.published:q} --confirmatory {input.confirmatory:q}"
        " --confirmatory-wide {input.confirmatory_wide:q}"
        " --acceptance {input.acceptance:q} --chain {input.chain:q}"
        " {params.references} --output {output.html:q} {input.mechanism:q}"
        " 2>&1 | tee {log:q}"
