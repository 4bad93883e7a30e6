import type { Counters } from '../protocol/heartbeat.js'

/** A frontend or backend row of `show stat`. */
export type ProxyRow = { name: string; kind: 'frontend' | 'backend'; status: string; counters: Counters }

/** Frontends and backends only; of all processes' objects. */
export const SHOW_PROXIES = 'show stat -1 3 -1'

/** Reads the CSV of `show stat`. Rows of other kinds are left out. */
export function parseStat(csv: string): ProxyRow[] {
  const lines = csv.split('\n')
  const columns = new Map(
    (lines[0] ?? '')
      .replace(/^# /, '')
      .split(',')
      .map((name, i) => [name, i]),
  )
  const rows: ProxyRow[] = []
  for (const line of lines.slice(1)) {
    if (line === '') continue
    const cells = splitCsv(line)
    const cell = (name: string) => cells[columns.get(name) ?? -1] ?? ''
    const number = (name: string) => {
      const value = Number(cell(name))
      return Number.isSafeInteger(value) && value >= 0 ? value : 0
    }
    const svname = cell('svname')
    if (svname !== 'FRONTEND' && svname !== 'BACKEND') continue
    const kind = svname === 'FRONTEND' ? 'frontend' : 'backend'
    rows.push({
      name: cell('pxname'),
      kind,
      status: cell('status'),
      counters: {
        bytesIn: number('bin'),
        bytesOut: number('bout'),
        activeConnections: number('scur'),
        totalConnections: number('stot'),
        // A backend has no faulty requests of its own: what failed there is connections and responses.
        requestErrors: kind === 'frontend' ? number('ereq') : number('econ') + number('eresp'),
      },
    })
  }
  return rows
}

/** Cells may be quoted; a quote inside is doubled. */
function splitCsv(line: string): string[] {
  const cells: string[] = []
  const pattern = /(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g
  for (const match of line.matchAll(pattern)) cells.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? '')
  return cells
}
