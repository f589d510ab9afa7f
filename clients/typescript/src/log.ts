// What a client reports besides its results.

/** Takes what a client reports: `info` is of interest to a developer, `warn` and `error` to an operator. */
export type Log = (level: "info" | "warn" | "error", text: string, error?: unknown) => void;

/** Writes warnings and errors to the standard error output. */
export const toConsole: Log = (level, text, error) => {
  if (level !== "info") console[level](`dueq: ${text}`, ...(error === undefined ? [] : [error]));
};
