import { Argument } from 'commander'
import { requireRoot } from '../../host/checks.js'
import { OperatorError } from '../../operator-error.js'
import { type Instance, openDatabase, openInstance } from '../../wiring/instance.js'
import { type AmphoraRow, amphoraRow } from './rows.js'

export const idArgument = new Argument('<id>', 'id of the amphora, or the beginning of it')

/** Runs `work` with the load balancer's database, then closes it. */
export async function withRows<T>(
  directory: string,
  work: (instance: Instance, database: ReturnType<typeof openDatabase>) => Promise<T>,
): Promise<T> {
  requireRoot()
  const instance = openInstance(directory)
  const database = openDatabase(instance, 'load_balancer', 'amphora')
  try {
    return await work(instance, database)
  } finally {
    await database.destroy()
  }
}

/** As withRows, for one amphora. @param id the beginning of its id */
export const withAmphora = <T>(
  directory: string,
  id: string,
  work: (instance: Instance, row: AmphoraRow) => Promise<T>,
): Promise<T> => withRows(directory, async (instance, database) => work(instance, await amphoraRow(database, id)))

/** The management address of an amphora. @throws OperatorError when it has no address yet */
export function addressOf({ id, address }: AmphoraRow): string {
  if (address === null) throw new OperatorError(`The amphora ${id} has no address yet.`)
  return address
}
