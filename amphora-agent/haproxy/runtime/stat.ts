import { type FailedCheck, failedCheck, isDetailed } from '../../protocol/checks.js'
import type { Counters } from '../../protocol/heartbeat.js'

/** A frontend or backend row of `show stat`; `limit` is its connection limit. */
export type ProxyRow = {
  name: string
  kind: 'frontend' | 'backend'
  status: string
  limit: number
  counters: Counters
}

/** Frontends and backends only, of all proxies. */
export const SHOW_PROXIES = 'show stat -1 3 -1'
/** Servers too, of which there may be thousands. */
export const SHOW_ALL = 'show stat -1 7 -1'
/** Names do not contain commas. */
const PROXY_ROW = /^[^,]*,(FRONTEND|BACKEND),/

/** Parses the CSV of `show stat`. Ignores other rows. */
export function parseStat(csv: string): ProxyRow[] {
  return rowsOf(csv, line => PROXY_ROW.test(line)).map(({ cell, number }): ProxyRow => {
    const kind = cell('svname') === 'FRONTEND' ? 'frontend' : 'backend'
    const counters = {
      bytesIn: number('bin'),
      bytesOut: number('bout'),
      activeConnections: number('scur'),
      totalConnections: number('stot'),
      // A backend has no request errors of its own; its failures are connections and responses.
      requestErrors: kind === 'frontend' ? number('ereq') : number('econ') + number('eresp'),
    }
    return { name: cell('pxname'), kind, status: cell('status'), limit: number('slim'), counters }
  })
}

/** Parses the connection limits (`maxconn`) of servers that have one from the same CSV, by path. */
export function parseServerLimits(csv: string): Map<string, number> {
  const limits = new Map<string, number>()
  for (const line of csv.split('\n')) {
    const [backend, server, , , , , limit] = line.split(',', 7)
    if (limit && !line.startsWith('#') && !PROXY_ROW.test(line)) limits.set(`${backend}/${server}`, Number(limit))
  }
  return limits
}

/** A failed check, as the statistics show it. While the next check runs, HAProxy hides the code and the words. */
export type ReadCheck = { check: FailedCheck; isPartial: boolean }

/** Parses why servers are down from the same CSV, by path. Members choose some of the cells. */
export function parseFailedChecks(csv: string): Map<string, ReadCheck> {
  const rows = rowsOf(csv, line => line.includes(',DOWN') && !PROXY_ROW.test(line))
  const checks = new Map<string, ReadCheck>()
  for (const { cell } of rows) {
    const status = cell('check_status')
    const check = failedCheck(status.replace(RUNNING, ''), cell('check_code'), cell('last_chk'))
    if (check === null || !cell('status').startsWith('DOWN')) continue
    const isPartial = RUNNING.test(status) && isDetailed(check.status)
    checks.set(`${cell('pxname')}/${cell('svname')}`, { check, isPartial })
  }
  return checks
}

/** Before the result of the last check. */
const RUNNING = /^\* /

/** Completes what a reading hides with what earlier ones showed of the same result. */
export function completeChecks(
  before: ReadonlyMap<string, ReadCheck>,
  now: ReadonlyMap<string, ReadCheck>,
): Map<string, ReadCheck> {
  return new Map(
    [...now].map(([path, read]) => {
      const known = before.get(path)
      return [path, read.isPartial && known?.check.status === read.check.status ? known : read]
    }),
  )
}

type Row = { cell: (name: string) => string; number: (name: string) => number }

function rowsOf(csv: string, isWanted: (line: string) => boolean): Row[] {
  const [head = '', ...lines] = csv.split('\n')
  const columns = new Map(
    head
      .replace(/^# /, '')
      .split(',')
      .map((name, i) => [name, i]),
  )
  return lines.filter(isWanted).map(line => {
    const cells = splitCsv(line)
    const cell = (name: string) => cells[columns.get(name) ?? -1] ?? ''
    const number = (name: string) => {
      const value = Number(cell(name))
      return Number.isSafeInteger(value) && value >= 0 ? value : 0
    }
    return { cell, number }
  })
}

/** Cells may be quoted; quotes inside are doubled. */
function splitCsv(line: string): string[] {
  if (!line.includes('"')) return line.split(',')
  const cells: string[] = []
  const pattern = /(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g
  for (const match of line.matchAll(pattern)) cells.push(match[1]?.replaceAll('""', '"') ?? match[2] ?? '')
  return cells
}
