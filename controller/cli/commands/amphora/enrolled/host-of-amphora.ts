import { type EnrolledHost, hostOfAmphora } from '../../../../compute/enrolled/hosts.js'
import { type Instance, openDatabase } from '../../../wiring/instance.js'

/** The enrolled host that is an amphora's machine; null if that is none. */
export async function enrolledHostOf(instance: Instance, amphoraId: string): Promise<EnrolledHost | null> {
  const database = openDatabase(instance, 'load_balancer', 'amphora')
  try {
    return await hostOfAmphora(database, amphoraId)
  } finally {
    await database.destroy()
  }
}
