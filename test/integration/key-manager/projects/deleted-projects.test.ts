import t, { type Test } from 'tap'
import { followDeletedProjects } from '../../../../controller/key-manager/keystone-listener/follow-deleted-projects.js'
import type { EraseProject } from '../../../../controller/key-manager/keystone-listener/handle.js'
import { startDatabaseProxy } from '../../../support/faults/database-proxy.js'
import { recordLog } from '../../../support/recorded-log.js'
import { startIdentity } from '../../../support/worlds/identity.js'
import { until } from '../../../support/worlds/krater.js'

const ERASED = 'project erased'

const identity = await startIdentity()
t.teardown(identity.stop)
const token = await identity.tokenOf('admin', 'admin')

let made = 0
async function createProject(attributes: Record<string, unknown> = {}): Promise<string> {
  made += 1
  const reply = await identity.call('POST /v3/projects', {
    token,
    body: { project: { name: `project-${made}`, domain_id: 'default', ...attributes } },
  })
  return reply.text('project.id')
}

const deleteProject = async (id: string) => {
  const { status } = await identity.call(`DELETE /v3/projects/${id}`, { token })
  if (status !== 204) throw new Error(`The project was not deleted: ${status}`)
}

const listed = (): Promise<string[]> => identity.database('deleted_project').orderBy('id').pluck('id')
const forget = () => identity.database('deleted_project').delete()

type Given = { erase?: EraseProject; graceSeconds?: number; sweepMs?: number; url?: string }

/** A follower, and the projects that it was told to erase. It stops with the test. */
async function follow(
  t: Test,
  { erase = async () => ({ secrets: 1 }), url = identity.databaseUrl, ...rest }: Given = {},
) {
  const recorded = recordLog()
  const erased: string[] = []
  const following = await followDeletedProjects({
    identityDatabase: identity.database,
    identityDatabaseUrl: url,
    eraseProject: async id => {
      erased.push(id)
      return erase(id)
    },
    log: recorded.log,
    ...rest,
  })
  t.teardown(following.stop)
  return { ...recorded, erased, stop: following.stop }
}

t.test('a deleted project is erased at once and stays listed for its grace period', async t => {
  const project = await createProject()
  // No periodic sweep runs during the test.
  const follower = await follow(t, { sweepMs: 600_000 })
  await deleteProject(project)
  t.match(await follower.line(ERASED), { projectId: project, erased: { secrets: 1 }, level: 30 })
  t.same(await listed(), [project], 'it stays listed for the grace period')
  const row = await identity.database('deleted_project').first()
  await until('the claim is released', async () => {
    const now = await identity.database('deleted_project').first()
    return now.lease_owner === null && now.due_at.getTime() - row.deleted_at.getTime() === 900_000
  })
  t.same(follower.erased, [project])
  await forget()
})

t.test('every deletion of a project lists it as deleted, in the same transaction', async t => {
  const parent = await createProject()
  const child = await createProject({ parent_id: parent })
  const { status } = await identity.call(`DELETE /v3/projects/${parent}`, { token })
  t.equal(status, 403)
  t.same(await listed(), [], 'a refused deletion lists nothing')

  const { text } = await identity.call('POST /v3/domains', { token, body: { domain: { name: 'leaving' } } })
  const domain = text('domain.id')
  const inDomain = [await createProject({ domain_id: domain }), await createProject({ domain_id: domain })]
  await identity.call(`PATCH /v3/domains/${domain}`, { token, body: { domain: { enabled: false } } })
  const gone = await identity.call(`DELETE /v3/domains/${domain}`, { token })
  t.equal(gone.status, 204)
  t.same(await listed(), [...inDomain].sort(), 'deleting a domain lists its projects')

  const undone = identity.database.transaction(async trx => {
    await trx('project').where({ id: parent }).delete()
    throw new Error('undone')
  })
  await t.rejects(undone, { message: 'undone' })
  t.same(await listed(), [...inDomain].sort())
  await identity.database('project').where({ id: parent }).delete()
  t.same(await listed(), [...inDomain, parent, child].sort(), 'deleting the row lists the project and its children')
  const follower = await follow(t)
  await until('all are erased', () => follower.erased.length === 4)
  t.same([...follower.erased].sort(), [...inDomain, parent, child].sort(), 'a follower catches up on earlier deletions')
  await follower.stop()
  await forget()
})

t.test('a project is erased once more after its grace period and then unlisted', async t => {
  const project = await createProject()
  const counts = [{ secrets: 2 }, { secrets: 1 }]
  const follower = await follow(t, { graceSeconds: 0.5, sweepMs: 100, erase: async () => counts.shift() ?? {} })
  await deleteProject(project)
  await until('the list is empty', async () => (await listed()).length === 0)
  t.same(follower.erased, [project, project])
  t.match(
    follower.lines.filter(({ msg }) => msg === ERASED),
    [{ erased: { secrets: 2 } }, { erased: { secrets: 1 } }],
  )
})

t.test('a failed erasure is retried and does not delay others', async t => {
  const [broken, whole] = [await createProject(), await createProject()]
  let tries = 0
  const erase: EraseProject = async id => {
    if (id === broken && ++tries < 3) throw new Error('out of order')
    return { secrets: 1 }
  }
  const follower = await follow(t, { erase, sweepMs: 600_000 })
  await deleteProject(broken)
  await deleteProject(whole)
  await follower.line(ERASED, line => line.projectId === whole)
  t.notOk(follower.lines.some(({ msg, projectId }) => msg === ERASED && projectId === broken))
  await follower.line(ERASED, line => line.projectId === broken)
  t.equal(tries, 3)
  await until('its failures are cleared', async () => {
    const row = await identity.database('deleted_project').where({ id: broken }).first()
    return row.failures === 0 && row.lease_owner === null
  })
  await follower.stop()
  await forget()
})

t.test('several followers share the list and take over expired claims', async t => {
  const projects = await Promise.all(Array.from({ length: 12 }, () => createProject()))
  for (const project of projects) await deleteProject(project)
  let release = () => undefined as unknown
  const stuck = new Promise<void>(resolve => (release = () => resolve()))
  const slow = await follow(t, { erase: () => stuck.then(() => ({})) })
  await until('the slow follower has claimed four', () => slow.erased.length === 4)
  const other = await follow(t)
  await until('the other follower has erased the rest', () => other.erased.length === 8)
  t.same([...slow.erased, ...other.erased].sort(), [...projects].sort(), 'each project went to one follower')

  // As if the holder had died: its claims have expired, and its late write changes nothing.
  await identity
    .database('deleted_project')
    .whereIn('id', slow.erased)
    .update({ lease_until: identity.database.fn.now(), fence: identity.database.raw('fence + 1') })
  await identity.database.raw(`SELECT pg_notify('krater_deleted_projects', '')`)
  await until('the other follower has erased them all', () => other.erased.length === 12)
  release()
  await Promise.all([slow.stop(), other.stop()])
  const rows = await identity.database('deleted_project').whereNotNull('lease_owner')
  t.same(rows, [])
  await forget()
})

t.test('a project that exists again is not erased', async t => {
  const project = await createProject()
  const row = await identity.database('project').where({ id: project }).first()
  await deleteProject(project)
  await identity.database('project').insert(row)
  const follower = await follow(t)
  await follower.line('a deleted project exists again; not erasing it')
  await until('the project is no longer listed', async () => (await listed()).length === 0)
  t.same(follower.erased, [])
})

t.test('a follower catches up after missing a notification', async t => {
  const proxy = await startDatabaseProxy(identity.databaseUrl)
  t.teardown(proxy.stop)
  const follower = await follow(t, { url: proxy.url, sweepMs: 600_000 })
  await proxy.disconnect()
  const project = await createProject()
  await deleteProject(project)
  t.same(follower.erased, [])
  await proxy.reconnect()
  await follower.line(ERASED, line => line.projectId === project)
  await follower.stop()

  const deaf = await follow(t, { url: 'postgres://nobody@/nowhere?host=/nowhere', sweepMs: 200 })
  const next = await createProject()
  await deleteProject(next)
  await deaf.line(ERASED, line => line.projectId === next)
})
