// Waits that end early: by a gate that opens, or by a signal.

/** Waits for a time, or until the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}

/** The result of a promise, or the reason of the signal if that is aborted before. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** What waits here goes on while the gate is open. */
export class Gate {
  private waiting = new Set<() => void>();
  private isOpen = false;

  constructor(isOpen = false) {
    this.isOpen = isOpen;
  }

  set(isOpen: boolean): void {
    this.isOpen = isOpen;
    if (!isOpen) return;
    for (const resume of this.waiting) resume();
  }

  /** Waits until the gate is open, for a time at most, or until the signal is aborted. */
  async wait(signal: AbortSignal, ms?: number): Promise<void> {
    if (this.isOpen || signal.aborted) return;
    let resume = (): void => {};
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      resume = resolve;
      this.waiting.add(resume);
      signal.addEventListener("abort", resume);
      if (ms !== undefined) timer = setTimeout(resume, Math.max(ms, 0));
    });
    clearTimeout(timer);
    this.waiting.delete(resume);
    signal.removeEventListener("abort", resume);
  }
}
