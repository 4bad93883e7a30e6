import { execFile } from 'node:child_process'
import t, { type Test } from 'tap'
import { openstackSessionIn } from '../../support/clients/openstack-session.js'
import { testDirectory } from '../../support/database/database.js'
import { startIdentity } from '../../support/worlds/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)

const environmentOf = (user: string, more: Readonly<Record<string, string>> = {}) => ({
  PATH: process.env.PATH,
  HOME: testDirectory(),
  PYTHONWARNINGS: 'ignore',
  OS_AUTH_URL: identity.url,
  OS_IDENTITY_API_VERSION: '3',
  OS_USERNAME: user,
  OS_PASSWORD: `${user}-pw`,
  OS_PROJECT_NAME: user,
  OS_USER_DOMAIN_NAME: 'Default',
  OS_PROJECT_DOMAIN_NAME: 'Default',
  OS_REGION_NAME: 'RegionOne',
  ...more,
})

/** Runs the command in a new process that logs in itself, as when a user types it. */
const typed = (user: string, line: string, environment: Readonly<Record<string, string>> = {}) =>
  new Promise<{ code: number; text: string; error: string }>(resolve => {
    const options = { timeout: 60_000, env: environmentOf(user, environment) }
    execFile('openstack', line.split(' '), options, (error, text, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), text, error: stderr })
    })
  })

async function shown(t: Test, user: string, line: string, environment: Readonly<Record<string, string>> = {}) {
  const { code, text, error } = await typed(user, `${line} -f json`, environment)
  t.equal(code, 0, `openstack ${line}: ${error}`)
  return JSON.parse(text)
}

const demo = openstackSessionIn(t, environmentOf('demo'))
const admin = openstackSessionIn(t, environmentOf('admin'))

t.test('the openstack command line', async t => {
  await t.test('logs in', async t => {
    const token = await shown(t, 'demo', 'token issue')
    t.match(token, { id: /^[\w-]{43}$/, project_id: identity.projects.demo, expires: /\+0000$/, user_id: String })
  })

  await t.test('shows the catalogue', async t => {
    const catalog = await demo.list('catalog list')
    t.same(
      catalog.map(entry => `${entry.Type} ${entry.Name}`),
      ['identity keystone', 'key-manager barbican', 'load-balancer octavia', 'network neutron'],
    )
  })

  await t.test('shows why a login or a request is refused', async t => {
    const wrong = await typed('demo', 'token issue', { OS_PASSWORD: 'wrong' })
    t.equal(wrong.code, 1)
    t.match(wrong.error, 'The request you have made requires authentication. (HTTP 401) (Request-ID: req-')
    const member = await demo.refused('user list')
    t.equal(member.status, 1)
    t.match(member.stderr, 'You are not authorized to perform the requested action: GET /v3/users. (HTTP 403)')
  })

  await t.test('creates domain, project, user, group and role assignments by name', async t => {
    await admin.done('domain create acme')
    await admin.done('project create --domain acme --tag blue wproj')
    const user = await admin.show(
      'user create --domain acme --project wproj --project-domain acme --password wu1-pw --email w@x.y wu1',
    )
    t.match(user, { name: 'wu1', email: 'w@x.y', enabled: true, default_project_id: String })
    await admin.done('role add --user wu1 --user-domain acme --project wproj --project-domain acme member')
    await admin.done('group create --domain acme crew')
    await admin.done('role add --group crew --group-domain acme --system all reader')
    const assignments = await admin.list('role assignment list --user wu1 --user-domain acme --names --effective')
    t.match(assignments.map(row => `${row.Role} ${row.User} ${row.Project}${row.System}`).sort(), [
      'member wu1@acme wproj@acme',
      'reader wu1@acme wproj@acme',
    ])
    const environment = {
      OS_AUTH_URL: `${identity.url}/v3`,
      OS_USER_DOMAIN_NAME: 'acme',
      OS_PROJECT_NAME: 'wproj',
      OS_PROJECT_DOMAIN_NAME: 'acme',
    }
    t.match(await shown(t, 'wu1', 'project show wproj', environment), { name: 'wproj', tags: ['blue'] })
  })

  await t.test('lists the endpoints of a service', async t => {
    const endpoints = await admin.list('endpoint list --service load-balancer --interface public')
    t.match(endpoints, [{ 'Service Name': 'octavia', URL: 'http://127.0.0.1:9876', Region: 'RegionOne' }])
  })

  await t.test('logs in with an application credential', async t => {
    const made = await demo.show('application credential create --secret s3cret --role member ci')
    t.match(made, { name: 'ci', roles: 'member', secret: 's3cret' })
    const environment = {
      OS_AUTH_TYPE: 'v3applicationcredential',
      OS_APPLICATION_CREDENTIAL_ID: String(made.id),
      OS_APPLICATION_CREDENTIAL_SECRET: 's3cret',
      OS_USERNAME: '',
      OS_PASSWORD: '',
      OS_PROJECT_NAME: '',
      OS_USER_DOMAIN_NAME: '',
      OS_PROJECT_DOMAIN_NAME: '',
    }
    t.match(await shown(t, 'demo', 'token issue', environment), { project_id: identity.projects.demo })
    await demo.done('application credential delete ci')
  })

  await t.test('changes the user’s own password', async t => {
    await demo.done('user password set --original-password demo-pw --password next')
    await shown(t, 'demo', 'token issue', { OS_PASSWORD: 'next' })
  })
})
