import type { Migration } from '../../database/migrate.js'
import { loadBalancers } from './001-load-balancers.js'
import { wholeApi } from './002-whole-api.js'
import { repairs } from './003-repairs.js'
import { reach } from './004-reach.js'
import { deregistrationDelay } from './005-deregistration-delay.js'
import { machineLimits } from './006-machine-limits.js'
import { impairment } from './007-impairment.js'
import { warmShares } from './008-warm-shares.js'
import { actions } from './009-actions.js'
import { memberKeys } from './010-member-keys.js'
import { fewerIndexes } from './011-fewer-indexes.js'
import { machinePlacement } from './012-machine-placement.js'
import { computeIds } from './013-compute-ids.js'
import { operatingReasons } from './014-operating-reasons.js'
import { tlsMaterial } from './015-tls-material.js'
import { certificateProofs } from './016-certificate-proofs.js'
import { acmeChallenges } from './017-acme-challenges.js'
import { expiryNotices } from './018-expiry-notices.js'
import { untoldBindings } from './019-untold-bindings.js'
import { placement } from './020-placement.js'
import { controllerHosts } from './021-controller-hosts.js'
import { enrolledHosts } from './022-enrolled-hosts.js'
import { agentUpgrades } from './023-agent-upgrades.js'
import { routerHost } from './024-router-host.js'
import { toldControllers } from './025-told-controllers.js'
import { removedHosts } from './026-removed-hosts.js'
import { ovnAddresses } from './027-ovn-addresses.js'
import { membersByPlace } from './028-members-by-place.js'

export const migrations: readonly Migration[] = [
  loadBalancers,
  wholeApi,
  repairs,
  reach,
  deregistrationDelay,
  machineLimits,
  impairment,
  warmShares,
  actions,
  memberKeys,
  fewerIndexes,
  machinePlacement,
  computeIds,
  operatingReasons,
  tlsMaterial,
  certificateProofs,
  acmeChallenges,
  expiryNotices,
  untoldBindings,
  placement,
  controllerHosts,
  enrolledHosts,
  agentUpgrades,
  routerHost,
  toldControllers,
  removedHosts,
  ovnAddresses,
  membersByPlace,
]
