import { addressesOf } from '../../network/driver.js'
import type { ComputeDriver, Machine, PluggedPort } from '../driver.js'

/** Of every machine. */
const PLACEMENT = { flavor: 'namespace', zone: 'local' } as const

/**
 * Amphorae that exist only in the database. Every amphora counts as running, even one that this process did not
 * create: after a restart, nothing remembers it.
 */
export function createNoopComputeDriver(): ComputeDriver {
  const created = new Set<string>()
  const plugged = new Map<string, Map<string, PluggedPort>>()
  const running = (amphoraId: string): Machine => ({ amphoraId, computeId: amphoraId, name: 'noop', state: 'running' })
  return {
    name: 'noop',
    create: async ({ amphoraId }) => {
      created.add(amphoraId)
      return { ...running(amphoraId), ...PLACEMENT }
    },
    find: async amphoraId => running(amphoraId),
    list: async () => [...created].map(running),
    inspect: async () => null,
    delete: async amphoraId => {
      created.delete(amphoraId)
      plugged.delete(amphoraId)
    },
    plug: async (amphoraId, port) => {
      const { id } = port
      plugged.set(amphoraId, (plugged.get(amphoraId) ?? new Map()).set(id, { id, addresses: addressesOf(port) }))
    },
    unplug: async (amphoraId, portId) => {
      plugged.get(amphoraId)?.delete(portId)
    },
    pluggedPorts: async amphoraId => [...(plugged.get(amphoraId)?.values() ?? [])],
    brokenInterfaces: async () => [],
  }
}
