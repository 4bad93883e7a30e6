import { networkInterfaces } from 'node:os'
import { failed } from '../../../key-manager/acme-server/probe/job.js'
import { isOnNetwork } from '../../../key-manager/acme-server/rules/addresses.js'
import { launchProbe } from '../../../key-manager/acme-server/validation/launch.js'
import type { Reach, Route } from '../../../key-manager/acme-server/validation/reach.js'
import { newId } from '../../../key-manager/ids.js'
import { type NetworkDriver, NoAddressLeft, type Subnet } from '../../../network/driver.js'
import type { Fabric } from '../../../network/local/fabric.js'
import { admitVisitor } from '../../../network/local/visits/visitor.js'

export type ReachOptions = {
  driver: NetworkDriver
  /** Null if the network driver has no networks on this host: then only outside networks are reached. */
  fabric: Fabric | null
  outsideNetworks: readonly string[]
  /** The probe's program; by default the bundled one. */
  program?: string
}

/**
 * How validations reach the networks of projects from this host: each by a process of its own, in a network namespace
 * that is plugged into that one network and has no way anywhere else. Hence an address that two projects use is always
 * that of the project that asks.
 */
export function createReach({ driver, fabric, outsideNetworks, program }: ReachOptions): Reach {
  const common = program === undefined ? {} : { program }
  const outside: Route = { probe: (job, signal) => launchProbe({ ...common, isolated: false }, job, signal) }
  const inside = (plugged: Fabric, projectId: string, subnet: Subnet): Route => ({
    probe: (job, signal) => {
      const connect = (pid: number) => admitVisitor(plugged, driver, { id: newId(), pid, projectId, subnet })
      return launchProbe({ ...common, isolated: true, connect }, job, signal).catch(error => {
        if (!(error instanceof NoAddressLeft)) throw error
        return failed('connection', 'the subnet has no free address from which to validate')
      })
    },
  })
  return {
    forbidden: async () => {
      const { subnet } = await driver.managementNetwork()
      return [subnet.cidr, ...ownAddresses()]
    },
    routeTo: async (projectId, address) => {
      const subnet = fabric === null ? null : await driver.subnetOf(projectId, address)
      if (subnet !== null && fabric !== null) return inside(fabric, projectId, subnet)
      return outsideNetworks.some(network => isOnNetwork(address, network)) ? outside : null
    },
  }
}

/** This machine's addresses, without zones. */
const ownAddresses = (): string[] =>
  Object.values(networkInterfaces()).flatMap(found => (found ?? []).map(({ address }) => address.replace(/%.*$/, '')))
