import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t from 'tap'
import { type SyncOptions, syncProjects } from '../../../../controller/cli/commands/key-manager/sync-projects.js'
import { connect } from '../../../../controller/database/connection.js'
import { eraseProject } from '../../../../controller/key-manager/erase-project.js'
import { listHeldProjects } from '../../../../controller/key-manager/held-projects.js'
import { tokenOf } from '../../../support/clients/callers.js'
import { startTestKeyManager } from '../../../support/clients/key-manager-api.js'
import { startIdentity } from '../../../support/worlds/identity.js'
import { until } from '../../../support/worlds/krater.js'

const [identity, keyManager] = await Promise.all([startIdentity(), startTestKeyManager()])
t.teardown(() => Promise.all([identity.stop(), keyManager.stop()]))
const directory = mkdtempSync(join(tmpdir(), 'krater-sync-projects-'))
t.teardown(() => rmSync(directory, { recursive: true, force: true }))

const store = (project: string) =>
  keyManager.store({ payload: 'x', payload_content_type: 'text/plain' }, tokenOf('creator', project))

const held = async () => (await listHeldProjects(keyManager.database)).map(({ projectId }) => projectId)

/** Runs the command. @returns its output, with the error if it fails */
async function sync(options: SyncOptions, settings: Record<string, unknown> = {}): Promise<string> {
  const database = { key_manager: keyManager.databaseUrl, identity: identity.databaseUrl }
  writeFileSync(join(directory, 'krater.yaml'), JSON.stringify({ database, identity: settings }), { mode: 0o600 })
  const lines: string[] = []
  await syncProjects(directory, options, line => lines.push(line)).catch(error => lines.push(String(error)))
  return lines.join('\n')
}

const GONE = ['dead00000000000000000000000000a1', 'dead00000000000000000000000000a2']
const { admin, service, demo } = identity.projects
const STANDING = [admin, service, String(demo)]

const nothingHeld = /Nothing to erase: .* \(0\)/
const external = { external_url: identity.url, username: 'admin', password: 'admin-pw', project_name: 'admin' }
const sources = [
  { name: 'our own identity service', settings: {} },
  { name: 'an external Keystone', settings: external },
]

t.test('without stored objects, the command compares nothing', async t => {
  for (const { settings } of sources) t.match(await sync({ yes: true }, settings), nothingHeld)
})

for (const { name, settings } of sources) {
  t.test(`compared with ${name}, the command lists missing projects and erases them with --yes`, async t => {
    for (const project of [...STANDING, ...GONE]) await store(project)
    await store(GONE[0]!)
    const shown = await sync({}, settings)
    t.match(shown, /data for 5 projects/)
    t.match(shown, new RegExp(`${GONE[0]} +2 +0 +0\n${GONE[1]} +1 +0 +0\nNothing was erased. Use --yes`))
    for (const project of STANDING) t.notMatch(shown, project)
    t.same(await held(), [...STANDING, ...GONE].sort(), 'the projects are only listed')

    const erased = await sync({ yes: true }, settings)
    for (const project of GONE) t.match(erased, `Erased: ${project}`)
    t.same(await held(), [...STANDING].sort())
    t.match(await sync({ yes: true }, settings), /Nothing to erase: .* \(3\)/)
  })

  t.test(`erasing most projects because ${name} lacks them needs --force`, async t => {
    for (const project of ['b1', 'b2', 'b3', 'b4']) await store(project)
    const refused = await sync({ yes: true }, settings)
    t.match(refused, /Most projects are missing \(4 of 7\).*--force/)
    t.equal((await held()).length, 7)
    t.match(await sync({ force: true }, settings), /Nothing was erased. Use --yes/)
    t.equal((await held()).length, 7)
    t.match(await sync({ yes: true, force: true }, settings), /Erased: b4/)
    t.same(await held(), [...STANDING].sort())
  })
}

t.test('nothing is erased when an external Keystone cannot answer', async t => {
  await store(GONE[0]!)
  const nobody = { ...external, external_url: 'http://127.0.0.1:1', request_timeout: 2 }
  const cases: [settings: Record<string, unknown>, words: RegExp][] = [
    [nobody, /cannot be reached/],
    [{ ...external, password: 'wrong' }, /does not accept the user admin/],
    [{ ...external, username: 'demo', password: 'demo-pw', project_name: 'demo' }, /Give that user the role admin/],
  ]
  for (const [settings, words] of cases) {
    const said = await sync({ yes: true, force: true }, settings)
    t.match(said, words)
    t.match(said, /Nothing was erased\.$/)
    t.notMatch(said, /-pw|wrong/)
  }
  t.ok((await held()).includes(GONE[0]!))
})

t.test('every project that owns something is found, and the service’s own keys are not', async t => {
  await sync({ yes: true, force: true })
  const only = 'c0ffee00000000000000000000000001'
  const before = await held()
  await keyManager.database('project_quota').insert({ project_id: only })
  t.same(await held(), [...before, only].sort())
  t.match(
    (await listHeldProjects(keyManager.database)).find(({ projectId }) => projectId === only),
    { secrets: 0, containers: 0, orders: 0 },
  )
  const consumer = 'c0ffee00000000000000000000000002'
  const open = await store(STANDING[0]!)
  await keyManager
    .database('secret')
    .where({ id: open })
    .update({ acl_users: ['user-member'] })
  await keyManager.ask(
    'POST',
    `/v1/secrets/${open}/consumers`,
    { service: 's', resource_type: 't', resource_id: 'r' },
    { token: tokenOf('member', consumer) },
  )
  t.ok((await held()).includes(consumer), 'this project has a consumer of another project’s secret')
  await eraseProject(keyManager.database, consumer)
  t.notOk((await held()).includes(consumer))
  await keyManager.database.raw(
    `INSERT INTO project_key (id, project_id, backend, wrapped, master_key_id)
     SELECT gen_random_uuid(), '', 'simple_crypto', '', id FROM master_key LIMIT 1`,
  )
  t.equal(await keyManager.database('project_key').where({ project_id: '' }).first('id').then(Boolean), true)
  t.notOk((await held()).includes(''), 'the service’s own keys belong to no project')
})

t.test('a secret stored during its project’s erasure is erased too', async t => {
  const { database } = keyManager
  const [gone] = GONE
  await store(gone!)
  const storing = await database.transaction()
  await storing.raw(
    `INSERT INTO secret (id, project_id, creator_id, project_key_id, ciphertext)
     SELECT gen_random_uuid(), project_id, 'u', id, '' FROM project_key WHERE project_id = ?`,
    [gone!],
  )
  const before = await database('secret').where({ project_id: gone, deleted_at: null })
  const erasing = eraseProject(database, gone!)
  await until('the erasure waits', async () => {
    const { rows } = await database.raw(
      `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    )
    return rows.length > 0
  })
  await storing.commit()
  t.match(await erasing, { secrets: before.length + 1 })
  t.notOk((await held()).includes(gone!))
})

t.test('an erasure may exceed the statement timeout of requests', async t => {
  const [gone] = GONE
  await store(gone!)
  const impatient = connect({ url: keyManager.databaseUrl, applicationName: 'test', poolSize: 1 })
  t.teardown(() => impatient.destroy())
  await impatient.raw(`SET statement_timeout = '100ms'`)
  await impatient.raw(`
    CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NEW; END $$;
    CREATE TRIGGER dawdle BEFORE UPDATE ON secret FOR EACH ROW EXECUTE FUNCTION dawdle()`)
  t.teardown(() => keyManager.database.raw('DROP FUNCTION dawdle CASCADE'))
  await t.rejects(impatient.raw('UPDATE secret SET updated_at = now()'), /statement timeout/)
  t.match(await eraseProject(impatient, gone!), { secrets: 1 })
  const { rows } = await impatient.raw('SHOW statement_timeout')
  t.equal(rows[0].statement_timeout, '100ms', 'the timeout is restored')
})
