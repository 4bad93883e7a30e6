import type { Database } from '../../database/connection.js'
import { type ControllerHost, HostElsewhere, HostNameTaken, HostUnknown, registerHost } from '../../hosts/registry.js'
import manifest from '../../package.json' with { type: 'json' }
import { OperatorError } from '../operator-error.js'
import { ensureHostRecord, hostNameOf, readHostRecord, writeHostRecord } from '../state-directory/host.js'
import { requireInstanceId } from './drivers.js'
import type { Instance } from './instance.js'

/** The version of this program. */
export const VERSION = manifest.version

/** This host's id among the controller hosts. @throws OperatorError when the state directory is not set up */
export function requireHostId(directory: string): string {
  const record = readHostRecord(directory)
  if (record !== null) return record.id
  throw new OperatorError(`${directory} is no controller host yet. Run \`krater up\` or \`krater db migrate\` first.`)
}

/**
 * Makes this host known to the others; the first start and `krater db migrate` do that. Safe to repeat.
 * @param database opened with the load balancer's role
 * @throws OperatorError when it was removed, or its name is taken
 */
export async function registerThisHost(instance: Instance, database: Database): Promise<ControllerHost> {
  const { directory, config } = instance
  const record = ensureHostRecord(directory)
  const host = {
    id: record.id,
    name: hostNameOf(config.host),
    address: config.host.address ?? null,
    instance: requireInstanceId(directory),
    version: VERSION,
  }
  try {
    await registerHost(database, host, !record.registered)
  } catch (error) {
    if (error instanceof HostNameTaken) {
      throw new OperatorError(
        `Another controller host of this database is called ${host.name}. Give this one another name, in host.name of krater.yaml or in KRATER_HOST_NAME. If this is that host, set up anew: \`krater controller remove ${host.name}\` removes what it was.`,
      )
    }
    if (error instanceof HostElsewhere) {
      throw new OperatorError(
        `The controller host ${host.name} runs from another machine or state directory already; two would make the same amphorae. Another machine needs a bundle of its own: run \`krater controller add\` with another name. If the other one is lost for good, run \`krater controller remove ${host.name}\` on another host, then \`krater controller add ${host.name}\`.`,
      )
    }
    if (error instanceof HostUnknown) {
      throw new OperatorError(
        `The database no longer knows this host, ${host.name}: \`krater controller remove\` removed it, or this is another database or an older copy. \`krater down --all\` removes what is left here; \`krater controller add\` on another host adds it again. If this is the only host, remove the file ${directory}/host and start again.`,
      )
    }
    throw error
  }
  if (!record.registered) writeHostRecord(directory, { ...record, registered: true })
  return host
}
