import type { Database } from '../database/connection.js'
import type { NetworkDriver } from './driver.js'

export type NetworkContext = {
  /** Connected with the network service's role. */
  database: Database
  sharedAddresses: { reserve: number; project_share: number }
}

/** Describes a network driver before it is opened. A new driver needs a folder and such a value in drivers.ts. */
export type NetworkDriverKind = {
  name: string
  /** Whether it connects machines on this host. */
  onHost: boolean
  /** What connects them there. */
  switching: 'bridges' | 'ovn'
  /** Programs it needs on the controller's host, each with its Debian package. */
  programs: readonly (readonly [program: string, debianPackage: string])[]
  open: (context: NetworkContext) => Promise<NetworkDriver>
}
