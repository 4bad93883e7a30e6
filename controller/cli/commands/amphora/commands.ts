import { requireRoot } from '../../host/checks.js'
import { runningPostmaster } from '../../host/postgres.js'
import { OperatorError } from '../../operator-error.js'
import { usesPrivateCluster } from '../../state-directory/database-urls.js'
import { print, table, visible } from '../../terminal.js'
import { type Instance, openDatabase, openInstance } from '../../wiring/instance.js'
import { withAgents } from './agents.js'
import { describeAmphora } from './describe.js'
import { operatorSsh } from './operator-ssh.js'
import { type AmphoraRow, amphoraRow, amphoraRows, heardText } from './rows.js'
import { writeSupportBundle } from './support-bundle.js'

/** Works on the rows of an instance; every connection is closed afterwards. */
async function withRows<T>(
  directory: string,
  work: (instance: Instance, database: ReturnType<typeof openDatabase>) => Promise<T>,
): Promise<T> {
  requireRoot()
  const instance = openInstance(directory)
  if (usesPrivateCluster(instance.config, directory) && runningPostmaster(directory) === null) {
    throw new OperatorError('Its PostgreSQL does not run: `krater up` starts it.')
  }
  const database = openDatabase(instance, 'load_balancer', 'amphora')
  try {
    return await work(instance, database)
  } finally {
    await database.destroy()
  }
}

export async function listAmphorae(directory: string): Promise<void> {
  const rows = await withRows(directory, (_instance, database) => amphoraRows(database))
  if (rows.length === 0) {
    print('There is no amphora.')
    return
  }
  const heading = ['id', 'status', 'role', 'address', 'heard', 'load balancer']
  const lines = rows.map(row => [
    row.id,
    row.status,
    row.role ?? '-',
    row.address ?? '-',
    heardText(row),
    row.loadBalancerId === null
      ? '(waits in the warm pool)'
      : `${row.loadBalancerId} ${row.loadBalancerName ?? ''}`.trimEnd(),
  ])
  for (const line of table([heading, ...lines])) print(line)
}

export async function showAmphora(directory: string, id: string): Promise<void> {
  await withRows(directory, async (instance, database) => {
    for (const line of table(await describeAmphora(instance, await amphoraRow(database, id)))) print(line)
  })
}

const addressOf = ({ id, address }: AmphoraRow): string => {
  if (address === null) throw new OperatorError(`The amphora ${id} has no address yet.`)
  return address
}

/** @returns the exit status of the shell or command */
export async function sshToAmphora(directory: string, id: string, command: readonly string[]): Promise<number> {
  const { instance, row } = await withRows(directory, async (instance, database) => ({
    instance,
    row: await amphoraRow(database, id),
  }))
  const target = { amphoraId: row.id, address: addressOf(row) }
  return (await operatorSsh(instance, target, command, 'inherit')).status
}

export async function amphoraLogs(directory: string, id: string, lines: number): Promise<void> {
  await withRows(directory, async (instance, database) => {
    const row = await amphoraRow(database, id)
    for (const line of await withAgents(instance, agents => agents.logs(row.id, addressOf(row), lines)))
      print(visible(line))
  })
}

export async function supportBundle(directory: string, id: string, output: string | undefined): Promise<void> {
  await withRows(directory, async (instance, database) => {
    const row = await amphoraRow(database, id)
    print(await writeSupportBundle(instance, row, output ?? `amphora-${row.id}.tar.gz`))
  })
}
