import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import t, { type Test } from 'tap'
import { sealedFrom } from '../../../../controller/key-manager/crypto/keyring.js'
import { masterKeyId } from '../../../../controller/key-manager/crypto/simple/backend.js'
import { passphraseContext } from '../../../../controller/key-manager/orders/order.js'
import { findPayload, payloadContext } from '../../../../controller/key-manager/secrets/secret.js'
import { tokenOf } from '../../../support/clients/callers.js'
import { until } from '../../../support/worlds/krater.js'
import { createRotationScene } from '../../../support/worlds/rotation-scene.js'

const scene = await createRotationScene(t, randomBytes(32))
const { ask, store, database, command, start, keyring, masterKeyFile } = scene

const text = (payload: string) => ({ payload, payload_content_type: 'text/plain' })
const project = (name: string) => tokenOf('member', name)
const keysInFile = () => readFileSync(masterKeyFile, 'utf8').trim().split('\n')
const keysOf = (projectId: string): Promise<string[]> =>
  database('project_key').where({ project_id: projectId }).pluck('id')
const rotationsOf = async (projectId: string): Promise<number> =>
  (await database('audit_record').where({ action: 'project-key.rotate', target_id: projectId })).length

/** Stores many secrets, encrypted as the API does. @returns their ids and payloads */
async function storeMany(projectId: string, count: number): Promise<Map<string, string>> {
  const many = new Map(Array.from({ length: count }, () => [randomUUID(), randomBytes(24).toString('hex')]))
  const rows = await Promise.all(
    [...many].map(async ([id, payload]) => {
      const { projectKeyId, ciphertext } = await keyring.seal(projectId, Buffer.from(payload), payloadContext(id))
      return {
        id,
        project_id: projectId,
        creator_id: 'x',
        content_type: 'text/plain',
        project_key_id: projectKeyId,
        ciphertext,
      }
    }),
  )
  await database.batchInsert('secret', rows, 500)
  return many
}

/** Decrypts secrets with a fresh keyring. @returns how many differ from what was stored */
async function countLost(stored: ReadonlyMap<string, string>): Promise<number> {
  const fresh = await scene.freshKeyring()
  const opened = await Promise.all(
    [...stored].map(async ([id, payload]) => {
      const { sealed } = await findPayload(database, id)
      return sealed !== null && String(await fresh.open(sealed, payloadContext(id))) === payload
    }),
  )
  return opened.filter(same => !same).length
}

/** Stores and reads secrets over the API, in old and new projects, until stopped. */
function startTraffic(t: Test, projects: readonly string[]) {
  const stored = new Map<string, string>()
  const faults: string[] = []
  let running = true
  const client = async (name: number): Promise<void> => {
    for (let at = 0; running && at < 5000; at++) {
      const projectId = at % 5 === 4 ? `${t.fullname.length}-${name}-${at}` : (projects[at % projects.length] ?? 'x')
      const token = project(projectId)
      const payload = `payload ${name} ${at}`
      const made = await ask('POST', '/v1/secrets', text(payload), { token })
      if (made.status !== 201) faults.push(`store: ${made.status} ${made.text}`)
      const id = String(made.body.secret_ref).slice(-36)
      const read = await ask('GET', `/v1/secrets/${id}/payload`, undefined, { token })
      if (read.text !== payload) faults.push(`read: ${read.status} ${read.text}`)
      else stored.set(id, payload)
    }
  }
  const clients = [1, 2].map(client)
  return {
    stored,
    stop: async () => {
      running = false
      await Promise.all(clients)
      return faults
    },
  }
}

t.test('rotating the master key loses no secret that is stored or read at the same time', async t => {
  const before = new Map<string, string>()
  for (let at = 0; at < 30; at++) before.set(await store(text(`old ${at}`), project(`early-${at}`)), `old ${at}`)
  const [former] = keysInFile()
  const traffic = startTraffic(t, ['early-1', 'early-2', 'busy'])
  await until('there is traffic', () => traffic.stored.size > 5)
  const { status, text: words } = await command('rotate-master-key')
  const sofar = traffic.stored.size
  await until('there is traffic afterwards', () => traffic.stored.size > sofar + 5)
  t.same(await traffic.stop(), [])
  t.equal(status, 0, words)
  t.match(words, /The master key [0-9a-f]{32} is active\. Wrapped \d+ project keys with it in \d+\.\d s\./)
  t.match(words, /Removed the former master key from/)
  const [current, ...others] = keysInFile()
  t.not(current, former)
  t.same(others, [])
  const id = masterKeyId(Buffer.from(current ?? '', 'hex'))
  t.same(
    await database('project_key').distinct().pluck('master_key_id'),
    [id],
    'no project key is wrapped with the former master key',
  )
  t.equal(await countLost(new Map([...before, ...traffic.stored])), 0)
  for (const secret of [former, current]) t.notMatch(words, secret)
})

t.test('rotating project keys loses no secret that is stored or read at the same time', async t => {
  const many = await storeMany('large', 1500)
  const order = randomUUID()
  const sealed = await keyring.seal('large', Buffer.from('the passphrase'), passphraseContext(order))
  await database('secret_order').insert({
    ...{ id: order, project_id: 'large', creator_id: 'x', type: 'asymmetric', meta: '{}' },
    ...{ sealed_passphrase: sealed.ciphertext, project_key_id: sealed.projectKeyId },
  })
  const times = () =>
    database('secret').where({ project_id: 'large' }).orderBy('id').limit(3).select('id', 'updated_at', 'created_at')
  const timesBefore = await times()
  const formerKeys: string[] = await database('project_key').pluck('id')
  const traffic = startTraffic(t, ['early-3', 'early-4', 'busy'])
  await until('there is traffic', () => traffic.stored.size > 5)
  const { status, text: words } = await command('rotate-project-keys', '--all')
  const sofar = traffic.stored.size
  await until('there is traffic afterwards', () => traffic.stored.size > sofar + 5)
  t.same(await traffic.stop(), [])
  t.equal(status, 0, words)
  t.match(words, /Replaced \d+ keys and re-encrypted \d+ values in \d+\.\d s \(\d+ per second\)\./)
  t.same(await database('project_key').whereIn('id', formerKeys).pluck('id'), [], 'the former keys are removed')
  t.same(await database('project_key').where({ active: false }).pluck('id'), [])
  t.equal(await countLost(new Map([...many, ...traffic.stored])), 0)
  t.same(await times(), timesBefore, 'users see no change')
  const [{ value, ...key }] = await database('secret_order as o')
    .join('project_key as k', 'k.id', 'o.project_key_id')
    .where('o.id', order)
    .select('o.sealed_passphrase as value', 'k.id as keyId', 'k.wrapped', 'k.master_key_id as masterKeyId', 'k.backend')
  const opened = await (await scene.freshKeyring()).open(sealedFrom(value, key), passphraseContext(order))
  t.equal(String(opened), 'the passphrase')
})

t.test('rotating one project’s key leaves other projects’ keys unchanged', async t => {
  const id = await store(text('mine'), project('alone'))
  const [before, others] = [await keysOf('alone'), await keysOf('early-5')]
  t.equal((await command('rotate-project-keys', '--project', 'alone')).status, 0)
  t.notSame(await keysOf('alone'), before)
  t.same(await keysOf('early-5'), others)
  t.equal(await countLost(new Map([[id, 'mine']])), 0)
  const neither = await command('rotate-project-keys')
  t.equal(neither.status, 2)
  t.match(neither.text, 'either --project <id> or --all')
  t.match(await command('rotate-project-keys', '--project', 'aloen'), { status: 1, text: /no key for a project aloen/ })
})

t.test('a project key rotation that is killed resumes on the next run', async t => {
  const many = await storeMany('killed', 2000)
  const [former] = await keysOf('killed')
  const moved = async () =>
    Number(
      (await database('secret').where({ project_id: 'killed' }).whereNot({ project_key_id: former }).count('* as n'))[0]
        ?.n,
    )
  const points: [string, () => Promise<boolean>][] = [
    ['the rotation has started', async () => (await database('key_rotation')).length > 0],
    ['the key is replaced', async () => (await keysOf('killed')).length === 2],
    ['some values are encrypted again', async () => (await moved()) > 0],
    ['half of the values are encrypted again', async () => (await moved()) >= 1000],
  ]
  // However fast it is, it does not come to its end before it is killed: the last value is locked.
  const lock = await database.transaction()
  await lock('secret')
    .where({ id: [...many.keys()].sort().at(-1) })
    .forUpdate()
  for (const [name, reached] of points) {
    const child = start('rotate-project-keys', '--project', 'killed')
    const ended = once(child, 'exit')
    await until(`${name}, or the rotation has ended`, async () => (await reached()) || child.exitCode !== null)
    child.kill('SIGKILL')
    await ended
    t.equal(await countLost(new Map([...many].slice(0, 300))), 0, name)
  }
  await lock.rollback()
  const { status, text: words } = await command('rotate-project-keys', '--project', 'killed')
  t.equal(status, 0, words)
  t.match(words, /Finishing the interrupted rotation that began at \S+ \S+\./)
  t.equal(await moved(), 2000)
  t.equal((await keysOf('killed')).length, 1)
  t.equal(await rotationsOf('killed'), 1, 'the key is replaced once')
  t.equal(await countLost(many), 0)
  t.same(await database('key_rotation'), [])
})

t.test('a master key rotation that is killed resumes from each of its steps', async t => {
  const id = await store(text('kept'), project('early-6'))
  const keep = new Map([[id, 'kept']])
  await t.test('after the new key is written to the file only', async t => {
    t.equal((await command('rotate-master-key', '--prepare')).status, 0)
    const [fresh] = keysInFile()
    t.equal(keysInFile().length, 2)
    t.equal(await countLost(keep), 0)
    t.equal((await command('rotate-master-key')).status, 0)
    t.same(keysInFile(), [fresh], 'the new run uses the key in the file')
  })
  await t.test('after the new key takes effect, before project keys are rewrapped', async t => {
    const before = keysInFile()[0]
    const inForce = async () => (await database('master_key').where({ active: true }).pluck('id'))[0]
    const former = await inForce()
    // Blocks the rotation at the first project key that it rewraps.
    await database.transaction(async trx => {
      await trx('project_key').forUpdate()
      const child = start('rotate-master-key')
      const ended = once(child, 'exit')
      await until('the new key is in effect', async () => (await inForce()) !== former)
      child.kill('SIGKILL')
      await ended
    })
    const [fresh] = keysInFile()
    t.equal(await countLost(keep), 0)
    const { status, text: words } = await command('rotate-master-key')
    t.equal(status, 0, words)
    if (before !== undefined) t.notMatch(keysInFile().join(), before)
    t.same(keysInFile(), [fresh], 'the new run continues with the same key')
  })
  t.equal(await countLost(keep), 0)
  t.equal((await ask('GET', `/v1/secrets/${id}/payload`, undefined, { token: project('early-6') })).text, 'kept')
})

t.test('concurrent rotations do no harm', async t => {
  const many = await storeMany('twice', 800)
  const both = await Promise.all([1, 2].map(() => command('rotate-project-keys', '--project', 'twice')))
  t.same(
    both.map(({ status }) => status),
    [0, 0],
    both.map(({ text: words }) => words).join(),
  )
  t.equal((await keysOf('twice')).length, 1)
  t.equal(await countLost(many), 0)
  const masters = await Promise.all([1, 2].map(() => command('rotate-master-key')))
  t.ok(masters.some(({ status }) => status === 0))
  for (const { status, text: words } of masters) t.ok(status === 0 || /already running/.test(words), words)
  t.equal(keysInFile().length, 1)
  t.equal(await countLost(many), 0)
})

t.test('values that cannot be decrypted are counted and kept, and the rest is rotated', async t => {
  const many = await storeMany('damaged', 20)
  const [bad] = many.keys()
  await database('secret')
    .where({ id: bad })
    .update({ ciphertext: randomBytes(60) })
  const { status, text: words } = await command('rotate-project-keys', '--project', 'damaged')
  t.equal(status, 1)
  t.match(words, /1 values cannot be decrypted\. They and their keys were not changed/)
  t.equal((await keysOf('damaged')).length, 2)
  if (bad !== undefined) many.delete(bad)
  t.equal(await countLost(many), 0)
  await database('secret').where({ id: bad }).delete()
})

t.test('with a wrong master key, the commands stop and say how to correct it', async t => {
  const right = readFileSync(masterKeyFile, 'utf8')
  const wrong = randomBytes(32)
  writeFileSync(masterKeyFile, `${wrong.toString('hex')}\n`)
  for (const words of [['rotate-master-key'], ['rotate-project-keys', '--all'], ['worker']]) {
    const { status, text: said } = await command(...words)
    t.equal(status, 1)
    t.match(said, /The master key is wrong: \d+ project keys need the active master key [0-9a-f]{32} in simple_crypto/)
    t.match(said, `the file ${masterKeyFile} does not have it: it has ${masterKeyId(wrong)}`)
    t.match(said, 'Put it back there')
    t.notMatch(said, wrong.toString('hex'))
    t.notMatch(said, /\n\s+at /, 'the error has no stack trace')
  }
  writeFileSync(masterKeyFile, right)
  t.equal((await command('rotate-project-keys', '--project', 'alone')).status, 0)
})
