// Goals, and what was measured.

const LONGEST = 120;

export const median = (values) => {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)];
};

export const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** 12,345,678 or 12.3 */
export const shown = (value) => {
  const digits = Number.isInteger(value) || Math.abs(value) >= 1_000 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
};

export class Report {
  rows = [];

  /** The part of a scenario. */
  of(scenario) {
    return {
      /** What holds on each machine: a run that misses it fails. */
      rule: (what, goal, measured, held) => this.#add({ scenario, what, goal, measured, held, kind: "rule" }),
      /** What a slow machine may miss. */
      time: (what, goal, measured, held) => this.#add({ scenario, what, goal, measured, held, kind: "time" }),
      figure: (what, measured) => this.#add({ scenario, what, goal: "", measured, held: null, kind: "figure" }),
      progress: (text) => console.error(`${scenario}: ${text}`),
    };
  }

  #add(row) {
    const measured = typeof row.measured === "number" ? shown(row.measured) : `${row.measured}`;
    const full = { ...row, measured };
    this.rows.push(full);
    console.error(`${row.scenario}: ${row.what}: ${measured}${row.held === false ? `, NOT ${row.goal}` : ""}`);
  }

  missed(isStrict) {
    const missed = this.rows.filter(({ kind, held }) => held === false && (kind === "rule" || isStrict));
    return missed.map(({ scenario, what, goal, measured }) => `${scenario}: ${what}: ${measured}, not ${goal}`);
  }

  table() {
    const held = ({ held, kind }) => held === null ? "" : held ? "yes" : kind === "rule" ? "NO" : "no (time)";
    const lines = this.rows.map((row) => [row.scenario, row.what, row.goal, row.measured.slice(0, LONGEST), held(row)]);
    const all = [["scenario", "what", "goal", "measured", "held"], ...lines];
    const widths = all[0].map((_, column) => Math.max(...all.map((line) => line[column].length)));
    return all.map((line) => line.map((cell, column) => cell.padEnd(widths[column])).join("  ").trimEnd()).join("\n");
  }
}
