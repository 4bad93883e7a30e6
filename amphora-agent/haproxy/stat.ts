import type { Counters } from '../protocol/heartbeat.js'

/** A frontend or backend row of `show stat`. */
export type ProxyRow = { name: string; kind: 'frontend' | 'backend'; status: string; counters: Counters }

/** Frontends and backends only; of all processes' objects. */
export const SHOW_PROXIES = 'show stat -1 3 -1'

/** Reads the CSV of `show stat`. Rows of other kinds are left out. */
export function parseStat(csv: string): ProxyRow[] {
  return rowsOf(csv).flatMap(({ cell, number }): ProxyRow[] => {
    const svname = cell('svname')
    if (svname !== 'FRONTEND' && svname !== 'BACKEND') return []
    const kind = svname === 'FRONTEND' ? 'frontend' : 'backend'
    const counters = {
      bytesIn: number('bin'),
      bytesOut: number('bout'),
      activeConnections: number('scur'),
      totalConnections: number('stot'),
      // A backend has no faulty requests of its own: what failed there is connections and responses.
      requestErrors: kind === 'frontend' ? number('ereq') : number('econ') + number('eresp'),
    }
    return [{ name: cell('pxname'), kind, status: cell('status'), counters }]
  })
}

type Row = { cell: (name: string) => string; number: (name: string) => number }

function rowsOf(csv: string): Row[] {
  const [head = '', ...lines] = csv.split('\n')
  const columns = new Map(
    head
      .replace(/^# /, '')
      .split(',')
      .map((name, i) => [name, i]),
  )
  return lines.filter(Boolean).map(line => {
    const cells = splitCsv(line)
    const cell = (name: string) => cells[columns.get(name) ?? -1] ?? ''
    const number = (name: string) => {
      const value = Number(cell(name))
      return Number.isSafeInteger(value) && value >= 0 ? value : 0
    }
    return { cell, number }
  })
}

/** Cells may be quoted; a quote inside is doubled. */
function splitCsv(line: string): string[] {
  if (!line.includes('"')) return line.split(',')
  const cells: string[] = []
  const pattern = /(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g
  for (const match of line.matchAll(pattern)) cells.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? '')
  return cells
}
