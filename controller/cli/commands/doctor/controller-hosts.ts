import { type Finding, fault, note, ok } from '../../../checks/finding.js'
import { type HostRow, hostState, readHosts } from '../../../hosts/read-hosts.js'
import { readHostRecord } from '../../state-directory/host.js'
import { type Instance, openDatabase } from '../../wiring/instance.js'
import { VERSION } from '../../wiring/this-host.js'

/** Seconds. A host whose amphorae others hear is heard anew with each heartbeat. */
const UNHEARD_SECONDS = 60

/** Checks what this host and the other controller hosts need of each other. Finds nothing if there are no others. */
export async function checkControllerHosts(instance: Instance): Promise<Finding[]> {
  const own = readHostRecord(instance.directory)?.id
  if (own === undefined) return []
  const database = openDatabase(instance, 'load_balancer', 'doctor')
  try {
    return hostFindings(await readHosts(database), { own, port: instance.config.health_manager.port })
  } finally {
    await database.destroy()
  }
}

/**
 * @param own id of this host
 * @param port the health managers' UDP port
 * Pure.
 */
export function hostFindings(hosts: readonly HostRow[], { own, port }: { own: string; port: number }): Finding[] {
  const others = hosts.filter(({ id, removed_at }) => id !== own && removed_at === null)
  if (others.length === 0) return []
  const self = hosts.find(({ id }) => id === own)
  const unreachable = self !== undefined && self.address === null
  return [
    ...(unreachable
      ? [
          fault(
            'controller hosts',
            'this one does not say where the others reach it, so they never hear its amphorae',
            'krater settings --restart host.address=ADDRESS',
          ),
        ]
      : []),
    ...others.map(host => hostFinding(host, port)),
  ]
}

function hostFinding(host: HostRow, port: number): Finding {
  const about = `host ${host.name}`
  const silent = `no sign of life for ${Math.round(host.silent_seconds ?? 0)} s`
  const forget = `if it does not come back: krater controller remove --gone ${host.name}`
  switch (hostState(host)) {
    case 'new':
      return note(about, 'was added, and has not started yet: `krater up --join BUNDLE` there')
    case 'gone':
      return fault(about, `gone: ${silent}; its load balancers move to other hosts`, forget)
    case 'slow':
      return fault(about, silent, `look whether it runs Krater and reaches the database; ${forget}`)
    case 'alive':
      return aliveFinding(host, about, port)
  }
}

function aliveFinding(host: HostRow, about: string, port: number): Finding {
  const { version, load_balancers: loadBalancers, amphorae, amphorae_heard_seconds: heard } = host
  if (version !== VERSION)
    return fault(
      about,
      `runs version ${version}, this host ${VERSION}`,
      'upgrade the older one: hosts share one database',
    )
  if (loadBalancers > 0 && amphorae > 0 && (heard === null || heard > UNHEARD_SECONDS)) {
    return fault(
      about,
      'no other host hears its amphorae, so it is never taken for gone, and its load balancers stay with it if it fails',
      `allow UDP port ${port} between the hosts, and set host.address on each`,
    )
  }
  const count = loadBalancers === 1 ? '1 load balancer' : `${loadBalancers} load balancers`
  return ok(about, `gives signs of life, version ${version}, ${count}`)
}
