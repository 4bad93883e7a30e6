import { type HostRow, hostState } from '../../../hosts/read-hosts.js'
import { table } from '../../terminal.js'

const HOST_HEADING = ['host', 'state', 'version', 'last sign of life', 'load balancers', 'amphorae', 'address']
const PROCESS_HEADING = ['host', 'process', 'pid', 'version', 'last sign of life', 'leases', 'running since']

/** A table of controller hosts. Pure. */
export function hostLines(hosts: readonly HostRow[]): string[] {
  if (hosts.length === 0) return ['No controller host has started on this database yet.']
  return table([HOST_HEADING, ...hosts.map(hostCells)])
}

/** A table of the processes of controller hosts. Pure. */
export function processLines(hosts: readonly HostRow[]): string[] {
  const rows = hosts.flatMap(({ name: host, processes }) =>
    processes.map(({ name, pid, version, silent_seconds, leases, started_at }) => [
      ...[host, name, String(pid), version],
      ...[ago(silent_seconds), String(leases), new Date(started_at).toISOString()],
    ]),
  )
  return rows.length === 0 ? ['No process runs.'] : table([PROCESS_HEADING, ...rows])
}

/** The cells of one host, in the order of HOST_HEADING. */
function hostCells(row: HostRow): string[] {
  const { name, version, silent_seconds, load_balancers, amphorae, address } = row
  const counts = [String(load_balancers), String(amphorae)]
  return [name, hostState(row), version ?? '-', ago(silent_seconds), ...counts, address ?? '-']
}

const ago = (seconds: number | null): string =>
  seconds === null ? 'never' : `${Math.max(0, Math.round(seconds))} s ago`
