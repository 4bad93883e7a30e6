/** What a build uses of the machine that it runs on; scripts/images.js provides it. */
export type Tools = {
  /** Shows `text` while `work` runs, and beside it what `work` reports. */
  step: <T>(text: string, work: (report: Report) => Promise<T>) => Promise<T>
  say: (text: string) => void
  /**
   * Runs a program and appends its output to the log of the build.
   * @throws an error for the user when it fails, takes too long or the build was interrupted
   */
  run: (
    program: string,
    args: readonly string[],
    options?: { report?: Report; seconds?: number; cwd?: string; env?: Readonly<Record<string, string>> },
  ) => Promise<void>
}

export type Report = (line: string) => void
