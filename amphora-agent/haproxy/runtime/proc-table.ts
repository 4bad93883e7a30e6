/** What `show proc` of the master socket says. */
export type ProcTable = {
  masterPid: number
  reloads: number
  /** Reloads that failed since the last one that succeeded. */
  failed: number
  /** Null while a reload has failed to bring one up. */
  workerPid: number | null
  oldWorkerPids: number[]
}

/** @returns null when the answer is not a process table */
export function parseProcTable(text: string): ProcTable | null {
  let section = ''
  let table: ProcTable | null = null
  for (const line of text.split('\n')) {
    if (line.startsWith('#')) section = line
    const master = /^(\d+)\s+master\s+(\d+)\s+\[failed: (\d+)\]/.exec(line)
    if (master) {
      table = {
        masterPid: Number(master[1]),
        reloads: Number(master[2]),
        failed: Number(master[3]),
        workerPid: null,
        oldWorkerPids: [],
      }
    }
    const worker = /^(\d+)\s+worker\s/.exec(line)
    if (!worker || table === null) continue
    if (section.startsWith('# old workers')) table.oldWorkerPids.push(Number(worker[1]))
    else table.workerPid = Number(worker[1])
  }
  return table
}
