import { readFileSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import { createLog } from '../../../log/log.js'
import { chassisOf, INTEGRATION_BRIDGE } from '../../../network/ovn/switch/open-vswitch.js'
import { ensureAll } from '../../../ovn/northbound/ensure-all.js'
import { Northbound } from '../../../ovn/northbound/northbound.js'
import type { OvnSettings } from '../../../ovn/options.js'
import type { Southbound } from '../../../ovn/southbound/southbound.js'
import { parseOvsdbAddresses } from '../../../ovsdb/address.js'
import type { OvsdbTls } from '../../../ovsdb/connection.js'
import { OvsdbUnreachable } from '../../../ovsdb/errors.js'
import { writePrivateFile } from '../../../process/private-file.js'
import { OperatorError } from '../../operator-error.js'
import { recordedOvn, standingOvnFile } from '../drivers.js'

/** For a cluster to choose a leader. */
const READY_MS = 15_000
/** For ovn-controller that has just started. */
const CHASSIS_MS = 5_000

/** Keeps how it is reached: `krater down --all` works without settings. */
export function recordOvn(directory: string, settings: OvnSettings): void {
  writePrivateFile(standingOvnFile(directory), `${JSON.stringify(settings, null, 2)}\n`)
}

/**
 * Servers of a cluster come and go, and certificates are renewed. Another OVN, or another switch, is refused: what is
 * in the present one would stay there.
 * @throws OperatorError
 */
export function requireSameOvn(recorded: OvnSettings, settings: OvnSettings): void {
  const remedy = 'Set it back, or remove everything with `krater down --all`.'
  for (const which of ['northbound', 'southbound', 'switch'] as const) {
    const servers = (recorded[which] ?? '').split(',').map(text => text.trim())
    if ((settings[which] ?? '').split(',').some(text => servers.includes(text.trim()))) continue
    throw new OperatorError(
      `The networks of this installation are in the OVN whose ${which} is ${recorded[which]}, and ovn.${which} names no server of it: ${settings[which]}. ${remedy}`,
    )
  }
}

/** @throws OperatorError for files that cannot be read, or do not go together */
export function tlsOf({ certificate_file, key_file, ca_file }: OvnSettings): OvsdbTls | undefined {
  if (certificate_file === undefined || key_file === undefined || ca_file === undefined) return undefined
  const read = (path: string): string => {
    try {
      return readFileSync(path, 'utf8')
    } catch (error) {
      throw new OperatorError(
        `${path} cannot be read: ${(error as Error).message}. It is named in the settings \`ovn\`.`,
      )
    }
  }
  const tls = { certificate: read(certificate_file), key: read(key_file), ca: read(ca_file) }
  try {
    createSecureContext({ cert: tls.certificate, key: tls.key, ca: tls.ca })
  } catch (error) {
    throw new OperatorError(
      `The certificate in ${certificate_file}, the key in ${key_file} and the authorities in ${ca_file} cannot be used together: ${(error as Error).message}. They are named in the settings \`ovn\`.`,
    )
  }
  return tls
}

/**
 * Rows have the mark of one installation. Two with the same would delete each other's.
 * @param northbound serves, and this installation has never used it
 * @throws OperatorError if rows with its mark are there
 */
export function requireNoTwin(northbound: Northbound, instance: string): void {
  if (northbound.owners().length === 0) return
  throw new OperatorError(
    `That OVN has rows with external_ids:"krater:instance"=${instance}, which is the ID of this installation, and it has never used that OVN. A copy of its state directory may be in use. What to do: start from an empty state directory, or, if nobody uses the rows, remove them as docs/ovn.md says.`,
  )
}

/**
 * @param southbound serves
 * @throws OperatorError unless this host's switch is a chassis of the OVN
 */
export async function requireChassis({ switch: text }: OvnSettings, southbound: Southbound): Promise<void> {
  const [address] = parseOvsdbAddresses(text) ?? []
  if (address === undefined) return
  const { systemId, hasBridge } = await chassisOf(address).catch((error: unknown) => {
    if (!(error instanceof OvsdbUnreachable)) throw error
    throw new OperatorError(
      `${error.message} What to do: start Open vSwitch on this host, or let ovn.switch name the socket of its database.`,
    )
  })
  const names = () => southbound.chassis().map(({ name }) => name)
  const isKnown = () => systemId !== null && names().includes(systemId)
  if (systemId === null || !(await southbound.client.until(isKnown, CHASSIS_MS)))
    throw new OperatorError(
      `The Open vSwitch at ${text} is no chassis of this OVN: its system-id is ${systemId ?? 'not set'}, and the chassis are ${names().join(', ') || 'none'}. What to do: set system-id, ovn-remote, ovn-encap-type and ovn-encap-ip in external_ids of its Open_vSwitch row, and start ovn-controller.`,
    )
  if (!hasBridge)
    throw new OperatorError(
      `The Open vSwitch at ${text} has no bridge ${INTEGRATION_BRIDGE}. What to do: start ovn-controller, which makes it.`,
    )
}

/**
 * Removes all rows of an installation from the OVN that stands.
 * @returns what stays there, and what to do; null if nothing does
 */
export async function leaveOvn(directory: string, instance: string): Promise<string | null> {
  const settings = recordedOvn(directory)
  if (settings === null) return null
  const addresses = parseOvsdbAddresses(settings.northbound ?? '') ?? []
  const stays = ({ message }: Error) =>
    `The rows of this installation stay in the OVN at ${settings.northbound}. ${message} docs/ovn.md says how to remove by hand what has the mark krater:instance=${instance} there.`
  let northbound: Northbound | null = null
  try {
    northbound = new Northbound({ addresses, tls: tlsOf(settings), instance, log: createLog('down', 'silent') })
    await northbound.client.ready(READY_MS)
    const { refused } = await ensureAll(
      northbound,
      northbound.owners().map(owner => ({ owner, generation: 0, rows: [] })),
    )
    const [first] = refused
    return first === undefined ? null : stays(first.error)
  } catch (error) {
    if (!(error instanceof OvsdbUnreachable || error instanceof OperatorError)) throw error
    return stays(error)
  } finally {
    await northbound?.stop()
  }
}
