import { spawn } from 'node:child_process'

const TIMEOUT_MS = 30_000

/** Marks of entries: those that agree with `mark` in the bits of `mask`. */
export type Marks = { mark: number; mask: number }

/** An entry of the kernel's table of connections. */
export type Flow = { id: number; mark: number }

/** Counts the entries by mark. @throws Error if conntrack fails */
export async function flowsByMark(): Promise<Map<number, number>> {
  const flows = new Map<number, number>()
  await conntrack(['-L'], text => {
    for (const [, mark] of text.matchAll(/ mark=(\d+)/g)) {
      const number = Number(mark)
      if (number > 0) flows.set(number, (flows.get(number) ?? 0) + 1)
    }
  })
  return flows
}

/** The packets of a flow as clients send them. */
export type FlowTuple = {
  protocol: 'udp' | 'sctp'
  source: string
  sourcePort: number
  destination: string
  destinationPort: number
}

/** A flow under way, and in how many seconds the kernel forgets it if no packet comes. */
export type FlowUnderWay = FlowTuple & { mark: number; secondsLeft: number }

const ENTRY =
  /^(udp|sctp) +\d+ (\d+) (?:[A-Z_]+ )?src=([\da-f.:]+) dst=([\da-f.:]+) sport=(\d+) dport=(\d+) .* mark=([1-9]\d*)/gm

/** Lists all entries with a mark. @throws Error if conntrack fails */
export async function flowsUnderWay(): Promise<FlowUnderWay[]> {
  const flows: FlowUnderWay[] = []
  await conntrack(['-L'], text => {
    for (const [, protocol, left, source = '', destination = '', from, to, mark] of text.matchAll(ENTRY)) {
      flows.push({
        protocol: protocol === 'udp' ? 'udp' : 'sctp',
        source,
        sourcePort: Number(from),
        destination,
        destinationPort: Number(to),
        mark: Number(mark),
        secondsLeft: Number(left),
      })
    }
  })
  return flows
}

/** Lists the entries with these marks. @throws Error if conntrack fails */
export const listFlows = (marks: Marks): Promise<Flow[]> => flowsOf('-L', marks)

/**
 * Deletes the entries with these marks: their next packets begin new flows.
 * @returns what was deleted. @throws Error if conntrack fails
 */
export const deleteFlows = (marks: Marks): Promise<Flow[]> => flowsOf('-D', marks)

async function flowsOf(command: '-L' | '-D', { mark, mask }: Marks): Promise<Flow[]> {
  const flows: Flow[] = []
  await conntrack([command, '--mark', `${mark}/${mask}`, '-o', 'id'], text => {
    for (const [, found, id] of text.matchAll(/ mark=(\d+) .*id=(\d+)/g)) {
      flows.push({ mark: Number(found), id: Number(id) })
    }
  })
  return flows
}

/** @param onLines called with whole lines of the output, piece by piece: there may be hundreds of thousands */
function conntrack(args: readonly string[], onLines: (text: string) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn('conntrack', args, {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: TIMEOUT_MS,
      killSignal: 'SIGKILL',
    })
    let rest = ''
    let complaint = ''
    child.stdout.setEncoding('latin1').on('data', (piece: string) => {
      const end = piece.lastIndexOf('\n') + 1
      if (end > 0) onLines(rest + piece.slice(0, end))
      rest = end > 0 ? piece.slice(end) : rest + piece
    })
    child.stderr.setEncoding('latin1').on('data', (piece: string) => {
      complaint = (complaint + piece).slice(-1_000)
    })
    child.on('error', reject)
    child.on('close', status => {
      // It ends with 1 if there was nothing to delete.
      if (status === 0 || / 0 flow entries have been deleted/.test(complaint)) resolve()
      else reject(new Error(`conntrack: ${complaint.trim() || `status ${status}`}`))
    })
  })
}
