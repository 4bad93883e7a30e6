import { X509Certificate } from 'node:crypto'
import { existsSync, readdirSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { ApiRefusal, NoAnswer } from '../../controller/cli/api-client.js'
import { loadConfiguration } from '../../controller/config/load.js'
import { connect } from '../../controller/database/connection.js'
import { askHttps } from '../support/clients/https-load.js'
import { killIfThere, processesInside } from '../support/faults/crash-amphora.js'
import { openDatabases } from '../support/faults/crash-inventory.js'
import type { Pair } from '../support/inputs/certificates.js'
import { authority, certificateFor, createHttpsSite } from '../support/worlds/https-site.js'
import { startKrater, until } from '../support/worlds/krater.js'

/**
 * One process after the other dies while certificates are deployed, exchanged and renewed. Each time the listener serves
 * what it should in the end, no handshake in between fails, and exactly the secrets in use are kept from deletion.
 */

const SITE = 'www.example.com'
const OTHER = 'other.example.com'
const DEPLOYED_PORT = 8443
/** Restarts of processes that die again and again become slower. */
const PATIENCE = 180

t.setTimeout(1_100_000)

const krater = await startKrater(t)
const databases = openDatabases(t, krater)
const { database: urls } = loadConfiguration(krater.directory, krater.environment)
const keys = connect({ url: urls.key_manager ?? '', applicationName: 'crash test' })
t.teardown(() => keys.destroy())

type Stored = { ref: string; id: string; serial: string }

const serialOf = (certificate: string) => new X509Certificate(certificate).serialNumber.toLowerCase()
const site = await createHttpsSite(t, krater, certificateFor(SITE))
const store = async (pair: Pair): Promise<Stored> => {
  const ref = await persistently(() => site.store(pair))
  return { ref, id: ref.slice(-36), serial: serialOf(pair.certificate) }
}
const [amphora = ''] = await databases.loadBalancer('amphora').where({ load_balancer_id: site.id }).pluck('id')
const inside = () => processesInside(`krater-${krater.instance()}-${amphora}`)

/** Names of processes of Krater, and of those in the amphora. */
type Victim = 'key-manager-api' | 'key-manager-worker' | 'worker' | 'load-balancer-api' | 'agent' | 'amphora'

async function kill(victim: Victim): Promise<void> {
  if (victim !== 'agent' && victim !== 'amphora') return void krater.kill(victim)
  const found = (await inside()).filter(({ command, isFirst }) =>
    victim === 'amphora' ? isFirst : /agent\.mjs/.test(command),
  )
  if (found.length !== 1) throw new Error(`${found.length} processes are the ${victim}`)
  for (const { pid } of found) killIfThere(pid)
}

/** Sends a request again while processes are away, or the load balancer is not ready for another change. */
async function persistently<T>(request: () => Promise<T>): Promise<T> {
  for (const end = performance.now() + PATIENCE * 1000; ; await pause(100)) {
    try {
      return await request()
    } catch (error) {
      const mayPass = error instanceof NoAnswer || (error instanceof ApiRefusal && [409, 503].includes(error.status))
      if (!mayPass || performance.now() > end) throw error
    }
  }
}

/** Tries to delete it. @returns the status of the answer, and what it says */
const remove = (id: string, kind: 'secrets' | 'containers' = 'secrets') =>
  persistently(() =>
    site.api.request('key-manager', 'DELETE', `/v1/${kind}/${id}`).then(
      () => '204',
      (error: unknown) => {
        if (!(error instanceof ApiRefusal) || error.status === 503) throw error
        return `${error.status} ${error.message}`
      },
    ),
  )
/** A refusal that names the load balancer as the user. */
const isKept = (answer: string) => answer.startsWith('409 ') && answer.includes(site.id)

/** What is used cannot be deleted, what is not can. */
async function consumersAreExact(t: Test, used: readonly Stored[], unused: readonly Stored[]) {
  const kept = await Promise.all(used.map(({ id }) => remove(id)))
  t.ok(kept.every(isKept), `used secrets are kept: ${kept}`)
  for (const { id } of unused)
    await until('a former secret is free', async () => (await remove(id)) === '204', PATIENCE)
}

/** The amphora keeps the keys of these references in its memory, and no others. */
async function keysAre(t: Test, wanted: readonly string[], files: readonly string[]) {
  const right = { store: [...wanted].sort(), files: [...files].sort() }
  let found = {}
  await until('no other keys are kept', async () => {
    found = await keysFound()
    return JSON.stringify(found) === JSON.stringify(right)
  }).catch(() => undefined)
  t.same(found, right, 'the amphora has the keys that it uses')
}

/** The keys in the amphora's memory. An amphora that starts anew has none. */
async function keysFound() {
  const first = (await inside()).find(({ isFirst }) => isFirst)?.pid
  const list = (directory: string) => {
    const path = `/proc/${first}/root/run/krater/${directory}`
    return existsSync(path) ? readdirSync(path).filter(name => name.endsWith('.pem')) : []
  }
  return {
    store: list('tls')
      .map(name => /^(?:secrets|containers)-([0-9a-f-]{36})-/.exec(name)?.[1] ?? name)
      .sort(),
    files: list('config/current/tls').sort(),
  }
}

const serving = (name: string, port: number, ca: string = authority.certificate) =>
  askHttps({ host: site.vip, port, name, tls: { ca } })
const isServed = (name: string, port: number, serial: string) =>
  serving(name, port).then(
    found => found.serial === serial,
    () => false,
  )

/** Makes one handshake after the other until stopped. */
function watch(name: string, port: number, ca?: string) {
  const seen = new Set<string>()
  const failures: string[] = []
  let running = true
  const watching = (async () => {
    for (; running; await pause(20)) {
      await serving(name, port, ca).then(
        ({ serial }) => seen.add(serial),
        (error: unknown) => failures.push(String(error)),
      )
    }
  })()
  const stop = async () => {
    running = false
    await watching
  }
  t.teardown(stop)
  return {
    /** None failed, and each saw one of these certificates. While the amphora is dead it may get no connection. */
    onlySaw: async (t: Test, victim: Victim, serials: readonly string[]) => {
      await stop()
      const wrong =
        victim === 'amphora' ? failures.filter(text => /certificate|altname|self.signed/i.test(text)) : failures
      t.same([...new Set(wrong)], [], `no handshake with ${name} fails`)
      t.same(
        [...seen].filter(serial => !serials.includes(serial)),
        [],
        `${name} has no other certificate`,
      )
    },
    seen,
  }
}

/** The load balancer and all in it are as requested, without a fault. */
async function isSettled(): Promise<boolean> {
  const path = `loadbalancers/${site.id}`
  const shown = await persistently(() => site.send<{ loadbalancer: { fault?: object } }>('GET', path))
  const tree = JSON.stringify(await persistently(() => site.send('GET', `${path}/status`)))
  return !/PENDING|"provisioning_status":"ERROR"/.test(tree) && (shown.loadbalancer.fault ?? null) === null
}
const settled = () => until('the load balancer is active, without a fault', isSettled, PATIENCE)

const balancerRow = () => databases.loadBalancer('load_balancer').where({ id: site.id }).first()
const bindingOf = (secret: string) =>
  keys('secret_consumer').where({ secret_id: secret, load_balancer_id: site.id }).first('confirmed')
const isRead = async (secret: string) =>
  (await keys('audit_record').where({ action: 'secret.payload.read', target_id: secret }).first('target_id')) !==
  undefined

/** From the request to the end of a change, by what shows that it has come so far. */
const MOMENTS = {
  'the request has bound them': async (secret: string) => (await bindingOf(secret)) !== undefined,
  'the worker has confirmed them': async (secret: string) => (await bindingOf(secret))?.confirmed === true,
  'the amphora has read them': isRead,
  'the change is in effect': async (_: string, before: number) =>
    Number((await balancerRow()).applied_generation) > before,
}
type Moment = keyof typeof MOMENTS

/** Looks again and again, without a pause: a moment is short. */
async function reach(what: string, isReached: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + PATIENCE * 1000; !(await isReached()); await pause(1))
    if (performance.now() > end) throw new Error(`Not within ${PATIENCE} s: ${what}`)
}

/** Makes a change that uses a new secret; the victim dies at the moment. */
async function disturbed(change: () => Promise<unknown>, { id }: Stored, moment: Moment, victim: Victim) {
  const before = Number((await balancerRow()).generation)
  const asked = persistently(change)
  asked.catch(() => undefined)
  await reach(moment, () => MOMENTS[moment](id, before))
  await kill(victim)
  await asked
}

let [current, other] = [await store(certificateFor(SITE)), await store(certificateFor(OTHER))]
const use = () =>
  site.send('PUT', `listeners/${site.listener}`, {
    listener: { default_tls_container_ref: current.ref, sni_container_refs: [other.ref] },
  })
await persistently(use)
await settled()
const filesInUse = () => [`${site.listener}.default.pem`, `${other.id}.pem`]

/** Neighbours differ: the supervisor restarts a process that dies again within 20 s later each time. */
const EXCHANGES: readonly [Moment, ...Victim[]][] = [
  ['the request has bound them', 'key-manager-api', 'load-balancer-api', 'worker', 'agent', 'amphora'],
  ['the worker has confirmed them', 'key-manager-api', 'worker', 'agent', 'amphora'],
  ['the amphora has read them', 'key-manager-api', 'load-balancer-api', 'worker', 'agent', 'amphora'],
  ['the change is in effect', 'key-manager-api', 'worker', 'agent'],
]
for (const [moment, ...victims] of EXCHANGES) {
  for (const victim of victims) {
    await t.test(`certificates are exchanged, and the ${victim} dies when ${moment}`, async t => {
      const former = [current, other] as const
      ;[current, other] = [await store(certificateFor(SITE)), await store(certificateFor(OTHER))]
      const watches = [watch(SITE, 443), watch(OTHER, 443)]
      await disturbed(use, current, moment, victim)
      await until(
        'the new certificates are served',
        async () => (await isServed(SITE, 443, current.serial)) && (await isServed(OTHER, 443, other.serial)),
        PATIENCE,
      )
      await settled()
      await watches[0]?.onlySaw(t, victim, [former[0].serial, current.serial])
      await watches[1]?.onlySaw(t, victim, [former[1].serial, other.serial])
      await consumersAreExact(t, [current, other], former)
      await keysAre(t, [current.id, other.id], filesInUse())
    })
  }
}

const DEPLOYMENTS: readonly [Moment, Victim, Victim][] = [
  ['the request has bound them', 'key-manager-api', 'worker'],
  ['the request has bound them', 'load-balancer-api', 'agent'],
  ['the worker has confirmed them', 'worker', 'key-manager-api'],
  ['the worker has confirmed them', 'agent', 'load-balancer-api'],
  ['the amphora has read them', 'worker', 'key-manager-api'],
  ['the amphora has read them', 'amphora', 'worker'],
]
for (const [moment, victim, last] of DEPLOYMENTS) {
  await t.test(`a listener is deployed, and the ${victim} dies when ${moment}; the ${last} when it goes`, async t => {
    const deployed = await store(certificateFor(SITE))
    const watched = watch(SITE, 443)
    type Listener = { id: string; protocol_port: number }
    const find = async () =>
      (await site.send<{ listeners: Listener[] }>('GET', 'listeners')).listeners.find(
        ({ protocol_port: port }) => port === DEPLOYED_PORT,
      )
    const listener = {
      ...{ loadbalancer_id: site.id, protocol: 'TERMINATED_HTTPS', protocol_port: DEPLOYED_PORT },
      ...{ default_pool_id: site.pool, default_tls_container_ref: deployed.ref },
    }
    const create = async () => (await find()) ?? (await site.send('POST', 'listeners', { listener }))
    await disturbed(create, deployed, moment, victim)
    await until('it serves', () => isServed(SITE, DEPLOYED_PORT, deployed.serial), PATIENCE)
    await settled()
    await consumersAreExact(t, [current, other, deployed], [])
    const { id } = (await persistently(find)) ?? { id: '' }
    await keysAre(t, [current.id, other.id, deployed.id], [...filesInUse(), `${id}.default.pem`])

    const removed = persistently(async () => (await find()) && site.send('DELETE', `listeners/${id}`))
    removed.catch(() => undefined)
    await reach('it is being deleted', async () => {
      const row = await databases.loadBalancer('listener').where({ id }).first('change')
      return row === undefined || row.change === 'delete'
    })
    await kill(last)
    await removed
    await until('it is gone', async () => (await persistently(find)) === undefined, PATIENCE)
    await settled()
    await watched.onlySaw(t, victim, [current.serial])
    await consumersAreExact(t, [current, other], [deployed])
    await keysAre(t, [current.id, other.id], filesInUse())
  })
}

await t.test('a certificate is renewed', async t => {
  const ordered = await krater.command('certificates', 'order', SITE)
  t.equal(ordered.status, 0, ordered.stderr)
  const ref = ordered.stdout.trim()
  const id = ref.slice(-36)
  const root = (await keys('certificate_authority').whereNull('parent_id').first('id'))?.id
  const ca = String(await site.api.request('key-manager', 'GET', `/v1/cas/${root}/cacert`))
  const former = [current, other]
  await site.update({ default_tls_container_ref: ref, sni_container_refs: [] })
  await settled()
  await consumersAreExact(t, [], former)
  type Issued = { version: number }
  const read = () =>
    persistently(() => site.api.request('key-manager', 'GET', `/v1/certificates/${id}`)) as Promise<Issued>
  const part = async () => {
    const found = await keys('container_secret').where({ container_id: id, name: 'certificate' }).first('secret_id')
    return String(found?.secret_id)
  }
  const moments: readonly [Victim, 'asked' | 'issued' | 'read'][] = [
    ['key-manager-worker', 'asked'],
    ['key-manager-worker', 'issued'],
    ['key-manager-api', 'asked'],
    ['key-manager-api', 'issued'],
    ['worker', 'issued'],
    ['worker', 'read'],
    ['agent', 'issued'],
    ['agent', 'read'],
    ['amphora', 'issued'],
  ]
  for (const [victim, moment] of moments) {
    await t.test(`and the ${victim} dies when it is ${moment}`, async t => {
      const { version } = await read()
      const { serial: before } = await serving(SITE, 443, ca)
      const earlier = keys.raw("now() - interval '1 hour'")
      await keys('certificate').where({ id }).update({ attempted_at: earlier, checked_at: earlier, asked_at: earlier })
      const watched = watch(SITE, 443, ca)
      await persistently(() => site.api.request('key-manager', 'POST', `/v1/certificates/${id}/renew`))
      const isIssued = async () => (await keys('container').where({ id }).first('version')).version > version
      if (moment !== 'asked') await reach('it is issued', isIssued)
      if (moment === 'read') await reach('the amphora has read it', async () => isRead(await part()))
      await kill(victim)
      await until(
        'the next certificate is served',
        () =>
          serving(SITE, 443, ca).then(
            ({ serial }) => serial !== before,
            () => false,
          ),
        PATIENCE,
      )
      await settled()
      const { serial: after } = await serving(SITE, 443, ca)
      t.equal((await read()).version, version + 1, 'it is renewed once')
      await watched.onlySaw(t, victim, [before, after])
      const kept = await remove(id, 'containers')
      t.ok(isKept(kept), `its container is kept: ${kept}`)
      await keysAre(t, [id], [`${site.listener}.default.pem`])
    })
  }
})
