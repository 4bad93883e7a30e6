import type { StatusResult } from '../../../../amphora-agent/protocol/messages.js'
import { type Finding, fault, note, ok } from '../../../checks/finding.js'
import type { Machine } from '../../../compute/driver.js'
import { computeDriver } from '../../../compute/drivers.js'
import { createLog } from '../../../log/log.js'
import { readAgentBundle } from '../../../provider/amphora/agent/bundle.js'
import { readHostRecord } from '../../state-directory/host.js'
import type { RunRecord } from '../../state-directory/run-record.js'
import { agentBundle, computeDriverOf, hostMachines } from '../../wiring/drivers.js'
import { type Instance, openDatabase } from '../../wiring/instance.js'
import { withAgents } from '../amphora/agents.js'
import { type AmphoraRow, amphoraRows, lastHeartbeat } from '../amphora/rows.js'

async function readRows(instance: Instance): Promise<AmphoraRow[]> {
  const database = openDatabase(instance, 'load_balancer', 'doctor')
  try {
    return await amphoraRows(database)
  } finally {
    await database.destroy()
  }
}

/** Checks every amphora's machine, agent and heartbeats, and finds machines without a row. */
export async function checkAmphorae(instance: Instance, running: readonly RunRecord[]): Promise<Finding[]> {
  const rows = await readRows(instance)
  const findings = heartbeatFindings(instance, rows, running)
  if (!computeDriverOf(instance).runsMachines) return findings
  const machines = (
    await Promise.all(
      (await hostMachines(instance.directory, createLog('doctor', 'warn'))).map(driver => driver.list()),
    )
  ).flat()
  const active = rows.filter(row => row.address !== null && ['READY', 'ALLOCATED'].includes(row.status))
  const { here, elsewhere } = byHost(active, readHostRecord(instance.directory)?.id ?? null)
  const checked = await withAgents(instance, agents =>
    Promise.all(
      here.map(async (row): Promise<Finding> => {
        const about = `amphora ${row.id.slice(0, 8)}`
        const remedy = 'a running worker repairs this; if not, see `krater amphora logs` and log/worker.log'
        const lack = machineLack(row, computeDriverOf(instance).name, machines)
        if (lack !== null) return fault(about, lack, remedy)
        return agents.status(row.id, row.address ?? '').then(
          status =>
            ok(
              about,
              `agent answers${otherText(status)}, ${servingText(status)}, last heartbeat ${lastHeartbeat(row)}`,
            ),
          (error: Error) => fault(about, `its agent does not answer: ${error.message}`, remedy),
        )
      }),
    ),
  )
  const unknown = machines.filter(({ amphoraId }) => !rows.some(({ id }) => id === amphoraId))
  return [
    ...findings,
    ...checked,
    ...elsewhere,
    ...unknown.map(({ amphoraId }) =>
      note(`amphora ${amphoraId.slice(0, 8)}`, 'machine without a database row; housekeeping will remove it'),
    ),
  ]
}

/** Those that this host can check, and a note about those of other controller hosts. Pure. */
export function byHost(
  rows: readonly AmphoraRow[],
  hostId: string | null,
): { here: AmphoraRow[]; elsewhere: Finding[] } {
  const here = rows.filter(row => row.hostId === null || row.hostId === hostId)
  const count = rows.length - here.length
  if (count === 0) return { here, elsewhere: [] }
  const text = `${count} ${count === 1 ? 'belongs' : 'belong'} to other controller hosts, where \`krater doctor\` checks them`
  return { here, elsewhere: [note('amphorae', text)] }
}

/**
 * What is wrong with the machine of an amphora, as a clause; null if nothing is, or if only its agent can tell. Pure.
 * @param standard name of the driver of rows without one
 */
export function machineLack(
  { id, driver }: Pick<AmphoraRow, 'id' | 'driver'>,
  standard: string,
  machines: readonly Pick<Machine, 'amphoraId' | 'state'>[],
): string | null {
  // An enrolled host is no part of this one.
  if (computeDriver(driver ?? standard).ownsManagement) return null
  const machine = machines.find(({ amphoraId }) => amphoraId === id)
  return machine?.state === 'running' ? null : `its machine is ${machine?.state ?? 'missing'}`
}

const otherText = ({ bundle }: StatusResult) =>
  bundle === readAgentBundle(agentBundle).sha256 ? '' : ' (not the one of this version: `krater amphora upgrade`)'

function servingText({ haproxy, datagramListeners: count = 0 }: StatusResult): string {
  const listeners = count === 0 ? '' : `, ${count} UDP or SCTP listener${count === 1 ? '' : 's'}`
  return `HAProxy is ${haproxy.running ? 'running' : 'not running'}${listeners}`
}

/** Whether heartbeats reach the database. */
function heartbeatFindings(
  { config }: Instance,
  rows: readonly AmphoraRow[],
  running: readonly RunRecord[],
): Finding[] {
  const expected = rows.filter(({ status, loadBalancerId }) => status === 'ALLOCATED' && loadBalancerId !== null)
  if (expected.length === 0) return [note('heartbeats', 'none expected: no amphora carries a load balancer')]
  if (!running.some(({ name }) => name === 'health-manager')) {
    return [note('heartbeats', 'no health manager is running on this machine')]
  }
  const stale = expected.filter(({ silentFor }) => silentFor === null || silentFor > config.health_manager.stale_after)
  const text = `${expected.length - stale.length} of ${expected.length} amphorae sent one in the last ${config.health_manager.stale_after} s`
  if (stale.length === 0) return [ok('heartbeats', text)]
  return [
    fault(
      'heartbeats',
      text,
      `allow UDP port ${config.health_manager.port} on the management network interface (check the firewall), and see log/health-manager.log`,
    ),
  ]
}
