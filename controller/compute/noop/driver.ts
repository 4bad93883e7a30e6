import { addressesOf } from '../../network/driver.js'
import { type ComputeDriver, LOCAL_ZONE, type Machine, type PluggedPort } from '../driver.js'

/**
 * Amphorae that exist only in the database. Every amphora counts as running, even one that this process did not
 * create: after a restart, nothing remembers it.
 */
export function createNoopComputeDriver(): ComputeDriver {
  const created = new Set<string>()
  const plugged = new Map<string, Map<string, PluggedPort>>()
  const running = (amphoraId: string): Machine => ({
    amphoraId,
    driver: 'noop',
    computeId: amphoraId,
    name: 'noop',
    state: 'running',
  })
  return {
    name: 'noop',
    create: async ({ amphoraId, placement }) => {
      created.add(amphoraId)
      return { ...running(amphoraId), zone: placement.zone ?? LOCAL_ZONE, image: null }
    },
    find: async amphoraId => running(amphoraId),
    list: async () => [...created].map(running),
    inspect: async () => null,
    delete: async amphoraId => {
      created.delete(amphoraId)
      plugged.delete(amphoraId)
    },
    plug: async (amphoraId, port) => {
      const one = { id: port.id, addresses: addressesOf(port) }
      plugged.set(amphoraId, (plugged.get(amphoraId) ?? new Map()).set(port.id, one))
      return one
    },
    unplug: async (amphoraId, portId) => {
      plugged.get(amphoraId)?.delete(portId)
    },
    pluggedPorts: async amphoraId => [...(plugged.get(amphoraId)?.values() ?? [])],
    brokenInterfaces: async () => [],
  }
}
