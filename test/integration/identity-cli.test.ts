import { execFile } from 'node:child_process'
import t, { type Test } from 'tap'
import { startIdentity } from '../support/identity.js'

const identity = await startIdentity()
t.teardown(identity.stop)

type Outcome = { code: number; out: unknown; text: string; error: string }

/** Runs the real command line as a user; the answer as JSON where the command can write it. */
function openstack(user: string, line: string, environment: Record<string, string> = {}): Promise<Outcome> {
  const words = line.split(' ')
  return new Promise(resolve => {
    execFile(
      'openstack',
      words,
      {
        timeout: 60_000,
        env: {
          PATH: process.env.PATH,
          HOME: '/nonexistent',
          PYTHONWARNINGS: 'ignore',
          OS_AUTH_URL: identity.url,
          OS_IDENTITY_API_VERSION: '3',
          OS_USERNAME: user,
          OS_PASSWORD: `${user}-pw`,
          OS_PROJECT_NAME: user,
          OS_USER_DOMAIN_NAME: 'Default',
          OS_PROJECT_DOMAIN_NAME: 'Default',
          OS_REGION_NAME: 'RegionOne',
          ...environment,
        },
      },
      (error, stdout, stderr) => {
        const isJson = /^[[{]/.test(stdout)
        resolve({
          code: error === null ? 0 : Number(error.code ?? 1),
          out: isJson ? JSON.parse(stdout) : undefined,
          text: stdout,
          error: stderr,
        })
      },
    )
  })
}

async function succeed(t: Test, user: string, line: string, environment: Record<string, string> = {}) {
  const outcome = await openstack(user, line, environment)
  t.equal(outcome.code, 0, `openstack ${line}: ${outcome.error}`)
  return outcome.out
}

t.test('the openstack command line', async t => {
  await t.test('logs in', async t => {
    const token = await succeed(t, 'demo', 'token issue -f json')
    t.match(token, { id: /^[\w-]{43}$/, project_id: identity.projects.demo, expires: /\+0000$/, user_id: String })
  })

  await t.test('shows the catalogue', async t => {
    const catalog = (await succeed(t, 'demo', 'catalog list -f json')) as { Name: string; Type: string }[]
    t.same(
      catalog.map(entry => `${entry.Type} ${entry.Name}`),
      ['identity keystone', 'key-manager barbican', 'load-balancer octavia', 'network neutron'],
    )
  })

  await t.test('says why a login failed', async t => {
    const wrong = await openstack('demo', 'token issue', { OS_PASSWORD: 'wrong' })
    t.equal(wrong.code, 1)
    t.match(wrong.error, 'The request you have made requires authentication. (HTTP 401) (Request-ID: req-')
    const member = await openstack('demo', 'user list')
    t.equal(member.code, 1)
    t.match(member.error, 'You are not authorized to perform the requested action: GET /v3/users. (HTTP 403)')
  })

  await t.test('makes domain, project, user, group and grants by name', async t => {
    await succeed(t, 'admin', 'domain create acme')
    await succeed(t, 'admin', 'project create --domain acme --tag blue wproj -f json')
    const user = await succeed(
      t,
      'admin',
      'user create --domain acme --project wproj --project-domain acme --password wu1-pw --email w@x.y wu1 -f json',
    )
    t.match(user, { name: 'wu1', email: 'w@x.y', enabled: true, default_project_id: String })
    await succeed(t, 'admin', 'role add --user wu1 --user-domain acme --project wproj --project-domain acme member')
    await succeed(t, 'admin', 'group create --domain acme crew')
    await succeed(t, 'admin', 'role add --group crew --group-domain acme --system all reader')
    const assignments = await succeed(
      t,
      'admin',
      'role assignment list --user wu1 --user-domain acme --names --effective -f json',
    )
    t.match(
      (assignments as { Role: string; User: string; Project: string; System: string }[])
        .map(row => `${row.Role} ${row.User} ${row.Project}${row.System}`)
        .sort(),
      ['member wu1@acme wproj@acme', 'reader wu1@acme wproj@acme'],
    )
    const environment = {
      OS_AUTH_URL: `${identity.url}/v3`,
      OS_USER_DOMAIN_NAME: 'acme',
      OS_PROJECT_NAME: 'wproj',
      OS_PROJECT_DOMAIN_NAME: 'acme',
    }
    t.match(await succeed(t, 'wu1', 'project show wproj -f json', environment), { name: 'wproj', tags: ['blue'] })
  })

  await t.test('lists endpoints by the name and the type of a service', async t => {
    const endpoints = await succeed(t, 'admin', 'endpoint list --service load-balancer --interface public -f json')
    t.match(endpoints, [{ 'Service Name': 'octavia', URL: 'http://127.0.0.1:9876', Region: 'RegionOne' }])
  })

  await t.test('an application credential logs in', async t => {
    const made = await succeed(t, 'demo', 'application credential create --secret s3cret --role member ci -f json')
    t.match(made, { name: 'ci', roles: 'member', secret: 's3cret' })
    const environment = {
      OS_AUTH_TYPE: 'v3applicationcredential',
      OS_APPLICATION_CREDENTIAL_ID: (made as { id: string }).id,
      OS_APPLICATION_CREDENTIAL_SECRET: 's3cret',
      OS_USERNAME: '',
      OS_PASSWORD: '',
      OS_PROJECT_NAME: '',
      OS_USER_DOMAIN_NAME: '',
      OS_PROJECT_DOMAIN_NAME: '',
    }
    t.match(await succeed(t, 'demo', 'token issue -f json', environment), { project_id: identity.projects.demo })
    await succeed(t, 'demo', 'application credential delete ci')
  })

  await t.test('changes the own password', async t => {
    await succeed(t, 'demo', 'user password set --original-password demo-pw --password next')
    await succeed(t, 'demo', 'token issue', { OS_PASSWORD: 'next' })
  })
})
