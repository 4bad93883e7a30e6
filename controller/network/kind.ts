import type { Database } from '../database/connection.js'
import type { NetworkDriver } from './driver.js'

export type NetworkContext = {
  /** With the network service's role. */
  database: Database
  sharedAddresses: { reserve: number; project_share: number }
}

/** What there is to know about a network driver before one is opened. A new driver is a folder and such a value in drivers.ts. */
export type NetworkDriverKind = {
  name: string
  /** Whether it connects machines of this host. */
  onHost: boolean
  /** Programs that it needs on the controller's host, with the Debian package of each. */
  programs: readonly (readonly [program: string, debianPackage: string])[]
  open: (context: NetworkContext) => Promise<NetworkDriver>
}
