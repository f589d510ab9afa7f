#!/usr/bin/env node
// Runs the program dueq of the package for this machine, which npm installs beside this one.
const { spawn } = require("node:child_process");
const { isatty } = require("node:tty");

const name = `@dueq/${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${name}/bin/dueq`);
} catch {
  console.error(`dueq: the package ${name} is not installed: npm was told to omit optional dependencies, or dueq has no package for this machine`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends these two to both processes: a second one would end a worker before its handlers.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => isatty(0) || child.kill(signal));
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (error) => {
  console.error(`dueq: cannot run ${program}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
