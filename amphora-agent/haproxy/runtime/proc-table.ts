/** The output of `show proc` on the master socket. */
export type ProcTable = {
  masterPid: number
  reloads: number
  /** Failed reloads since the last successful one. */
  failed: number
  /** Null if no worker runs, as after a failed reload. */
  workerPid: number | null
  oldWorkerPids: number[]
}

/** @returns null if the answer is not a process table */
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
