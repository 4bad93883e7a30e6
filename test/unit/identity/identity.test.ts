import { EventEmitter, once } from 'node:events'
import { readdirSync } from 'node:fs'
import { availableParallelism, getPriority } from 'node:os'
import fc from 'fast-check'
import t from 'tap'
import { configurationSchema } from '../../../controller/config/schema.js'
import { sourceOf } from '../../../controller/http/trusted-proxies.js'
import { isAllowedBy } from '../../../controller/identity/access-rules.js'
import { fillTemplate } from '../../../controller/identity/catalog.js'
import { locate } from '../../../controller/identity/discovery.js'
import { createLockOut } from '../../../controller/identity/login/lock-out.js'
import { createLogins, type Verify } from '../../../controller/identity/login/logins.js'
import { hashPassword, verifyPassword } from '../../../controller/identity/login/passwords.js'
import { seal, unseal } from '../../../controller/identity/resources/credential-seal.js'
import { callerFrom, isoTime, type TokenDocument } from '../../../controller/identity/tokens/document.js'
import { accountName } from '../../../controller/identity/tokens/proof.js'
import { createTokenTurns } from '../../../controller/identity/tokens/token-turns.js'
import { createFairQueue } from '../../../controller/process/fair-queue.js'

/** Counts the threads of this process that have some niceness. */
const tasksOfNiceness = (niceness: number): number =>
  readdirSync('/proc/self/task').filter(task => getPriority(Number(task)) === niceness).length

const document: TokenDocument = {
  methods: ['password'],
  user: { id: 'u', name: 'demo', domain: { id: 'default', name: 'Default' }, password_expires_at: null },
  audit_ids: ['a'],
  issued_at: '2026-11-21T07:47:10.000000Z',
  expires_at: '2026-11-21T08:47:10.000000Z',
}
const project = { id: 'p1', name: 'demo', domain: { id: 'default', name: 'Default' } }

t.test('access rules match service, method and path pattern', async t => {
  const allows = (path: string, request: string) =>
    isAllowedBy([{ service: 'load-balancer', method: 'GET', path }], {
      service: 'load-balancer',
      method: 'GET',
      path: request,
    })
  t.ok(allows('/v2/lbaas/loadbalancers', '/v2/lbaas/loadbalancers'))
  t.notOk(allows('/v2/lbaas/loadbalancers', '/v2/lbaas/loadbalancers/1'))
  t.ok(allows('/v2/lbaas/*', '/v2/lbaas/pools'))
  t.notOk(allows('/v2/lbaas/*', '/v2/lbaas/pools/1'), '* matches one segment')
  t.notOk(allows('/v2/lbaas/*', '/v2/lbaas/'), '* does not match an empty segment')
  t.ok(allows('/v2/{kind}/pools/{id}', '/v2/lbaas/pools/1'))
  t.ok(allows('/v2/**', '/v2/lbaas/pools/1/members'))
  t.ok(allows('/v2/**/members', '/v2/lbaas/pools/1/members'))
  t.notOk(allows('/v2/**/members', '/v2/lbaas/pools/1/members/2'))
  t.ok(allows('/v2/**/a/**/b', '/v2/a/x/a/y/b'))
  t.notOk(allows('/v2/.*', '/v2/xy'), 'patterns are not regular expressions')
  const rule = { service: 'network', method: 'GET' as const, path: '/**' }
  t.notOk(isAllowedBy([rule], { service: 'load-balancer', method: 'GET', path: '/v2' }), 'another service')
  t.notOk(isAllowedBy([rule], { service: 'network', method: 'POST', path: '/v2' }), 'another method')
  t.notOk(isAllowedBy([], { service: 'network', method: 'GET', path: '/v2' }), 'an empty list of rules allows nothing')
})

t.test('hostile path patterns are matched quickly', async t => {
  for (const pattern of [`/${'**/a/'.repeat(25)}x`, `/**${'/a'.repeat(60)}/b`, `/**${'/{a}'.repeat(30)}/b`]) {
    const rules = Array.from({ length: 100 }, () => ({ service: 's', method: 'GET' as const, path: pattern }))
    const started = performance.now()
    t.notOk(isAllowedBy(rules, { service: 's', method: 'GET', path: '/a'.repeat(7500) }))
    t.ok(performance.now() - started < 10_000, pattern)
  }
})

t.test('endpoint templates are filled in from the token', async t => {
  const scoped = { ...document, project, roles: [] }
  t.equal(fillTemplate('http://h/%(project_id)s/x', scoped), 'http://h/p1/x')
  t.equal(fillTemplate('http://h/$(tenant_id)s', scoped), 'http://h/p1')
  t.equal(fillTemplate('http://h/$(user_id)s', document), 'http://h/u')
  t.equal(fillTemplate('http://h/%(project_id)s', document), null, 'an endpoint that needs a project is omitted')
  t.equal(fillTemplate('http://h/%(constructor)s', scoped), null)
  t.equal(fillTemplate('http://h:9311', document), 'http://h:9311')
})

t.test('the base address of a request follows its host, path prefix and public URL', async t => {
  const at = (publicUrl: string | null, host: string, path = '/v3') =>
    locate(publicUrl === null ? null : new URL(publicUrl), `http://${host}`, path)
  t.same(at(null, 'lab:5000'), { base: 'http://lab:5000', path: '/v3' })
  t.same(at(null, '[::1]:5000', '/'), { base: 'http://[::1]:5000', path: '/' })
  t.same(at(null, 'lab', '/identity/v3/users'), { base: 'http://lab/identity', path: '/v3/users' })
  t.same(at(null, 'lab', '/identity'), { base: 'http://lab/identity', path: '/' })
  t.same(at(null, 'lab', '/identityx'), { base: 'http://lab', path: '/identityx' })
  const proxy = 'https://id.example.org/keystone/v3'
  t.same(at(proxy, 'id.example.org', '/keystone/v3'), { base: 'https://id.example.org/keystone', path: '/v3' })
  t.same(
    at(proxy, 'inside:5000', '/v3'),
    { base: 'http://inside:5000', path: '/v3' },
    'another host gives another base',
  )
  t.same(at(null, 'lab', '/v3/identity'), { base: 'http://lab', path: '/v3/identity' })
})

t.test('passwords are hashed with a salt and verified', async t => {
  const hash = await hashPassword('gehe!m', 14)
  t.notMatch(hash, 'gehe!m')
  t.not(hash, await hashPassword('gehe!m', 14), 'the hash is salted')
  const verify = (password: string, stored: string | null | undefined) => verifyPassword(password, stored, 14)
  t.same(await verify('gehe!m', hash), { matches: true, upgraded: null })
  t.same(await verify('gehe!M', hash), { matches: false, upgraded: null })
  for (const none of [null, undefined, 'not a hash']) {
    t.same(await verify('', none), { matches: false, upgraded: null }, String(none))
  }
})

t.test('repeated failures pause logins for one account from one source', async t => {
  let clock = 0
  const lockOut = createLockOut({ attempts: 3, maxPauseSeconds: 60, now: () => clock })
  const attacker = { account: 'demo', source: '192.0.2.66' }
  const owner = { account: 'demo', source: '192.0.2.1' }
  const pauses = Array.from({ length: 11 }, () => {
    lockOut.failed(attacker)
    const seconds = lockOut.secondsLeft(attacker)
    clock += seconds * 1000
    return seconds
  })
  t.same(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60])
  lockOut.failed(attacker)
  t.equal(lockOut.secondsLeft(attacker), 60)
  t.equal(lockOut.secondsLeft(owner), 0, 'other sources of the account are not affected')
  t.equal(lockOut.secondsLeft({ ...attacker, account: 'admin' }), 0, 'other accounts are not affected')
  lockOut.succeeded(owner, 'id of demo')
  t.equal(lockOut.knownUser(owner), 'id of demo')
  t.equal(lockOut.knownUser(attacker), undefined)
  lockOut.failed(owner)
  t.equal(lockOut.knownUser(owner), 'id of demo', 'one failure changes nothing')
  for (let failures = 0; failures < 2; failures++) lockOut.failed(owner)
  t.equal(lockOut.knownUser(owner), undefined, 'after three failures the source is no longer known')
  clock += 121_000
  lockOut.failed(attacker)
  t.equal(lockOut.secondsLeft(attacker), 0, 'the count restarts after a while')
})

t.test('many IPv6 networks of one site share the login turns of one source', async t => {
  const { identity } = configurationSchema.parse({})
  const logins = createLogins(identity)
  const attempt = (address: string) =>
    logins.attempt({ account: 'demo', source: sourceOf(address) }, async () => {
      await held
      return { userId: address }
    })
  let letGo = () => {}
  const held = new Promise<void>(resolve => {
    letGo = resolve
  })
  const flood = Array.from({ length: 1_100 }, (_, index) => attempt(`2001:db8:7:${index.toString(16)}::1`))
  const others = ['192.0.2.1', '2001:db8:8::1'].map(attempt)
  letGo()
  const refused = (await Promise.allSettled(flood)).filter(({ status }) => status === 'rejected')
  t.ok(refused.length > 1_000, `${refused.length} are refused`)
  t.same(await Promise.all(others), [{ userId: '192.0.2.1' }, { userId: '2001:db8:8::1' }])
})

t.test('after failures, logins of unknown users from that source queue separately, at low priority', async t => {
  const { identity } = configurationSchema.parse({ identity: { password_hash_rounds: 14 } })
  const logins = createLogins(identity)
  const attempt = (account: string, address: string, prove: (verify: Verify) => Promise<{ userId: string } | null>) =>
    logins.attempt({ account, source: sourceOf(address) }, prove)
  const right = async () => ({ userId: 'id' })
  await attempt('known', '192.0.2.1', right)
  for (const account of ['a', 'b', 'c', 'd', 'e']) await attempt(account, '192.0.2.1', async () => null)

  const held = new EventEmitter()
  const inside: string[] = []
  const guesses = Array.from({ length: 30 }, (_, index) =>
    attempt(`guessed ${index}`, '192.0.2.1', async () => {
      inside.push('guess')
      await once(held, 'let go')
      return null
    }),
  )
  const niceOnes = () => tasksOfNiceness(Math.max(10, getPriority()))
  const computes = async (verify: Verify) => {
    inside.push('other')
    await verify('secret', null)
    return { userId: 'id' }
  }
  await attempt('known', '192.0.2.1', computes)
  await attempt('unknown', '192.0.2.2', computes)
  t.same(inside.filter(who => who === 'other').length, 2, 'they run while the guesses occupy all their turns')
  t.ok(inside.includes('guess'))
  t.equal(niceOnes(), 0, 'neither runs at low priority')
  const firstOnes = tasksOfNiceness(Math.max(-20, getPriority() - 10))
  t.equal(firstOnes, availableParallelism() > 1 ? 1 : 0, 'one thread runs at high priority')
  let isOver = false
  const ended = Promise.all(guesses).finally(() => {
    isOver = true
  })
  while (!isOver) {
    await new Promise(setImmediate)
    held.emit('let go')
  }
  await ended
  await attempt('unknown', '192.0.2.1', computes)
  t.equal(niceOnes(), 1, 'its hash is computed at low priority')
})

t.test('a site is suspect only while its failures are recent', async t => {
  let clock = 0
  const lockOut = createLockOut({ attempts: 3, maxPauseSeconds: 60, now: () => clock })
  const login = { account: 'demo', source: '2001:db8:7:1::/64' }
  t.equal(lockOut.isSuspect(login), false)
  for (const account of ['one', 'two']) lockOut.failed({ account, source: '2001:db8:7:2::/64' })
  t.equal(lockOut.isSuspect(login), false, 'two failures are not enough')
  lockOut.failed({ account: 'three', source: '2001:db8:7:2::/64' })
  t.equal(lockOut.isSuspect(login), true, 'a third failure makes the site suspect')
  t.equal(lockOut.isSuspect({ account: 'demo', source: '2001:db8:8:1::/64' }), false)
  lockOut.succeeded(login, 'id')
  t.equal(lockOut.isSuspect(login), false, 'a known login is not suspect')
  clock += 60_000
  t.equal(lockOut.isSuspect({ ...login, account: 'other' }), false)
})

t.test('an address that tries many accounts takes no login turns from the rest of its site', async t => {
  const { identity } = configurationSchema.parse({})
  const logins = createLogins(identity)
  const held = new EventEmitter()
  const attempt = (account: string, address: string) =>
    logins.attempt({ account, source: sourceOf(address) }, async () => {
      await once(held, 'let go')
      return { userId: account }
    })
  const flood = (from: number) =>
    Array.from({ length: 100 }, (_, index) => attempt(`guessed ${from + index}`, '2001:db8:7:1::1'))
  const guesses = flood(0)
  const other = attempt('demo', '2001:db8:7:2::1')
  guesses.push(...flood(100))
  const ended = Promise.allSettled(guesses)
  let isOver = false
  const all = Promise.allSettled([other, ended]).finally(() => {
    isOver = true
  })
  while (!isOver) {
    await new Promise(setImmediate)
    held.emit('let go')
  }
  await all
  t.same(await other, { userId: 'demo' })
  t.ok((await ended).some(({ status }) => status === 'rejected'))
})

/** Fills a queue while it is occupied, then lets everyone in. @returns the order of entry, and who was refused */
async function orderOf(limits: object, places: readonly (readonly [lane: string, who: string])[]) {
  const queue = createFairQueue({
    maxRunning: 1,
    maxRunningPerLane: 1,
    maxWaiting: 100,
    maxWaitingPerLane: 100,
    refusal: lane => new Error(`no room in ${lane}`),
    ...limits,
  })
  const leave = await queue.enter(['first', ''])
  const entered: string[] = []
  const refused: string[] = []
  const all = places.map(async place => {
    try {
      const leave = await queue.enter(place)
      entered.push(place.join('/'))
      leave()
    } catch {
      refused.push(place.join('/'))
    }
  })
  leave()
  await Promise.all(all)
  return { entered: entered.join(' '), refused: refused.join(' ') }
}

t.test('lanes take turns, and so do the callers within a lane', async t => {
  const flood = (lane: string, who: string, count: number) => Array.from({ length: count }, () => [lane, who] as const)
  t.match(await orderOf({}, [...flood('a', 'x', 3), ['a', 'y'], ['b', 'z'], ['c', 'z'], ['b', 'z']]), {
    entered: 'a/x b/z c/z a/y b/z a/x a/x',
    refused: '',
  })
  t.match(
    await orderOf({ maxWaitingPerLane: 3 }, [...flood('a', 'x', 5), ['a', 'y'], ['b', 'z']]),
    { entered: 'a/x b/z a/y a/x', refused: 'a/x a/x a/x' },
    'the largest caller in a full lane loses its newest entry',
  )
  t.match(
    await orderOf({ maxWaiting: 4 }, [...flood('a', 'x', 9), ['b', 'z'], ['c', 'z']]),
    { entered: 'a/x b/z c/z a/x', refused: 'a/x a/x a/x a/x a/x a/x a/x' },
    'the longest lane gives up entries to others',
  )
  t.match(
    await orderOf({ maxWaitingPerLane: 2 }, [
      ['a', 'x'],
      ['a', 'y'],
      ['a', 'z'],
    ]),
    { entered: 'a/x a/y', refused: 'a/z' },
    'a newcomer to a full lane displaces no caller with a single entry',
  )
})

t.test('a lane never takes all places of a queue', async t => {
  const limits = { maxRunning: 3, maxRunningPerLane: 2, maxWaiting: 100, maxWaitingPerLane: 100 }
  const queue = createFairQueue({ ...limits, refusal: lane => new Error(lane) })
  const within: string[] = []
  const enter = async (lane: string) => {
    const leave = await queue.enter([lane, ''])
    within.push(lane)
    return leave
  }
  const [first] = [await enter('a'), await enter('a')]
  const third = enter('a')
  await enter('b')
  t.same(within, ['a', 'a', 'b'], 'the third of lane a waits, although a place is free')
  first?.()
  await third
  t.same(within, ['a', 'a', 'b', 'a'])
})

t.test('a lane has fewer turns while other lanes are active', async t => {
  let clock = 0
  const limits = {
    maxRunning: 4,
    maxRunningPerLane: 2,
    maxRunningPerLaneContended: 1,
    maxWaiting: 100,
    maxWaitingPerLane: 100,
  }
  const queue = createFairQueue({ ...limits, refusal: lane => new Error(lane), now: () => clock })
  const within: string[] = []
  const enter = async (lane: string) => {
    const leave = await queue.enter([lane, ''])
    within.push(lane)
    return leave
  }
  const [first, second] = [await enter('a'), await enter('a')]
  const waiting = [enter('a'), enter('a'), enter('a')] as const
  const other = await enter('b')
  t.same(within, ['a', 'a', 'b'], 'lane a had two turns while alone')
  first()
  other()
  await new Promise(setImmediate)
  t.same(within, ['a', 'a', 'b'], 'lane a gets one turn, although places are free')
  second()
  const third = await waiting[0]
  t.same(within, ['a', 'a', 'b', 'a'])
  clock = 1000
  third()
  await Promise.all(waiting)
  t.same(within, ['a', 'a', 'b', 'a', 'a', 'a'], 'after a second, lane a counts as alone again')
})

/** Token checks that run until the test ends them. */
function tokenChecks() {
  const { check } = createTokenTurns()
  const ends = new Map<string, () => void>()
  return {
    begun: () => [...ends.keys()].join(' '),
    begin: async (token: string, source: string, owner: string | null) => {
      const look = () =>
        new Promise<{ owner: string } | null>(resolve => {
          ends.set(token, () => resolve(owner === null ? null : { owner }))
        })
      const checked = check({ token, source }, look, found => [`project ${found.owner}`, ''])
      await new Promise(setImmediate)
      return checked
    },
    end: async (token: string) => {
      ends.get(token)?.()
      ends.delete(token)
      await new Promise(setImmediate)
    },
  }
}

t.test('token checks queue by source, or by owner once the owner is known', async t => {
  const { begin, end, begun } = tokenChecks()
  const beginAll = async (...checks: Parameters<typeof begin>[]) => {
    for (const each of checks) void begin(...each)
    await new Promise(setImmediate)
  }
  await beginAll(['known', '192.0.2.1', 'p'])
  await end('known')
  await beginAll(['x1', '192.0.2.1', null], ['x2', '192.0.2.1', null], ['x3', '192.0.2.1', null])
  t.equal(begun(), 'x1 x2', 'a source has two turns')
  await beginAll(['y', '192.0.2.2', null], ['known', '192.0.2.1', 'p'])
  t.equal(begun(), 'x1 x2 y known', 'another source, and a known owner at the same source, do not wait')
  await end('known')
  await beginAll(['known', '192.0.2.3', null])
  await end('known')
  await beginAll(['known', '192.0.2.1', 'p'])
  t.equal(begun(), 'x1 x2 y', 'an invalid token has no owner')
})

t.test('a sealed blob opens only with its own key and id', async t => {
  const key = Buffer.alloc(32, 1)
  fc.assert(fc.property(fc.string({ unit: 'grapheme' }), blob => unseal(key, 'id', seal(key, 'id', blob)) === blob))
  const sealed = seal(key, 'id', 'secret')
  t.notOk(sealed.includes('secret'))
  t.throws(() => unseal(Buffer.alloc(32, 2), 'id', sealed))
  t.throws(() => unseal(key, 'other', sealed))
  const last = sealed.length - 1
  sealed[last] = sealed[last]! ^ 1
  t.throws(() => unseal(key, 'id', sealed))
})

t.test('a token document becomes a caller', async t => {
  const expiresAt = new Date()
  t.same(callerFrom({ ...document, project, roles: [{ id: 'r', name: 'Load-Balancer_Member' }] }, expiresAt), {
    user: { id: 'u', name: 'demo', domain: { id: 'default', name: 'Default' } },
    project,
    domain: null,
    system: false,
    roles: ['load-balancer_member'],
    expiresAt,
  })
  t.match(callerFrom({ ...document, system: { all: true }, roles: [] }, expiresAt), { system: true, project: null })
  t.same(callerFrom(document, expiresAt).roles, [])
})

t.test('times are formatted with microseconds', async t => {
  t.equal(isoTime(new Date(Date.UTC(2026, 10, 21, 7, 47, 10, 5))), '2026-11-21T07:47:10.005000Z')
})

t.test('a domain name given with its id does not change the account', async t => {
  const named = (domain: { id?: string; name?: string }) => accountName({ name: 'admin', domain })
  t.equal(named({ id: 'default', name: 'whatever' }), named({ id: 'default' }))
  t.not(named({ name: 'one' }), named({ name: 'other' }))
  t.equal(accountName({ id: 'u', name: 'a' }), accountName({ id: 'u', name: 'b' }))
})
