import type { Migration } from '../../database/migrate.js'
import { networks } from './001-networks.js'
import { quotas } from './002-quotas.js'
import { allowedAddresses } from './003-allowed-addresses.js'
import { providerNetworks } from './004-provider-networks.js'
import { routers } from './005-routers.js'
import { securityGroups } from './006-security-groups.js'
import { wakeUps } from './007-wake-ups.js'
import { publicIpv6 } from './008-public-ipv6.js'
import { surroundings } from './009-surroundings.js'

export const migrations: readonly Migration[] = [
  networks,
  quotas,
  allowedAddresses,
  providerNetworks,
  routers,
  securityGroups,
  wakeUps,
  publicIpv6,
  surroundings,
]
