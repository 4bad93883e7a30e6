import { existsSync } from 'node:fs'
import { type Finding, fault, ok } from '../../../../checks/finding.js'
import { namespaceExists } from '../../../../network/local/namespace.js'
import { routerNamespace } from '../../../../network/local/routers/router.js'
import { readFilters } from '../../../../network/local/security-groups/read-filters.js'
import { readRouters } from '../../../../network/local/worker/read-routers.js'
import { logFile } from '../../../host/log-files.js'
import { fabricOf, networkDriverOf } from '../../../wiring/drivers.js'
import { type Instance, openDatabase } from '../../../wiring/instance.js'

/** Exists once br_netfilter is loaded. */
const BRIDGE_NETFILTER = '/proc/sys/net/bridge'

/** Checks that the kernel has the routers of the database, and what security groups need. */
export async function checkRouters(instance: Instance): Promise<Finding[]> {
  const { onHost, switching } = networkDriverOf(instance)
  if (!onHost || switching !== 'bridges') return []
  const database = openDatabase(instance, 'network', 'doctor')
  try {
    const [routers, { filters }] = await Promise.all([readRouters(database), readFilters(database)])
    const fabric = fabricOf(instance.directory)
    const attached = new Set(await fabric.attachedLegs())
    const advice = `tail ${logFile(instance.directory, 'network-worker')}; it repairs routers every few seconds while it runs`
    const broken = routers.flatMap(({ id, interfaces, gateway }) => {
      if (!namespaceExists(routerNamespace(fabric.instance, id))) return [`router ${id} has no network namespace`]
      const legs = [...interfaces, ...(gateway === null ? [] : [gateway])]
      const missing = legs.filter(({ portId }) => !attached.has(portId))
      return missing.map(({ portId }) => `router ${id} has no interface for its port ${portId}`)
    })
    return [
      ...(routers.length > 0 && broken.length === 0 ? [ok('routers', `${routers.length} in the kernel`)] : []),
      ...broken.map(what => fault('routers', what, advice)),
      ...(filters.length > 0 && !existsSync(BRIDGE_NETFILTER) ? [withoutModule(filters.length)] : []),
    ]
  } finally {
    await database.destroy()
  }
}

const withoutModule = (ports: number): Finding =>
  fault(
    'security groups',
    `the kernel module br_netfilter is missing: ${ports === 1 ? 'a port with groups gets' : `${ports} ports with groups get`} no traffic`,
    'modprobe br_netfilter; to load it at each start: echo br_netfilter > /etc/modules-load.d/krater.conf',
  )
