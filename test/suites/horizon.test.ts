import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { startBrowser } from '../support/clients/browser.js'
import { startHorizon } from '../support/services/horizon.js'
import { apiUrls, type Krater, startKrater, until } from '../support/worlds/krater.js'

/** Runs the commands by which the README lets Horizon find the compute routes. */
async function addToCatalogue(krater: Krater, networkUrl: string): Promise<void> {
  const [, section = ''] = /\n### Horizon\n(.*?)\n### /s.exec(readFileSync('README.md', 'utf8')) ?? []
  const commands = [...section.matchAll(/^openstack (.*)$/gm)].map(([, command = '']) => command)
  for (const command of commands) {
    await krater.openstack(command.replace('http://127.0.0.1:9696', networkUrl).split(' '), 'krater-admin')
  }
}

/** Fills the form with what it requires: a subnet, a listener, a pool and a monitor. */
async function createLoadBalancer(page: Page): Promise<void> {
  const form = page.locator('.modal-content')
  const field = (name: string) => form.locator(`[ng-model="model.spec.${name}"]`)
  await page.getByRole('button', { name: 'Create Load Balancer' }).click()
  await field('loadbalancer.name').fill('from-horizon')
  await field('loadbalancer.vip_subnet_id').locator('button').click()
  await field('loadbalancer.vip_subnet_id').locator('tbody tr', { hasText: 'private-subnet' }).click()
  await form.getByText('Listener Details').click()
  await field('listener.protocol').selectOption({ label: 'HTTP' })
  await form.getByText('Pool Details').click()
  await field('pool.lb_algorithm').selectOption({ index: 1 })
  await form.getByText('Monitor Details').click()
  await field('monitor.type').selectOption({ label: 'HTTP' })
  await form.getByRole('button', { name: 'Create Load Balancer' }).click()
}

async function logIn(t: Test, page: Page, url: string, krater: Krater): Promise<void> {
  const openrc = readFileSync(join(krater.directory, 'openrc'), 'utf8')
  const [, password = ''] = /OS_PASSWORD='(.*)'/.exec(openrc) ?? []
  await page.goto(`${url}/auth/login/`)
  await page.locator('#id_username').fill('demo')
  await page.locator('#id_password').fill(password)
  await page.locator('#loginBtn').click()
  await page.getByRole('heading', { name: 'Overview' }).waitFor()
  t.equal(await page.locator('.alert-danger').count(), 0, 'the first page has no complaint')
}

t.test('a user makes a load balancer in Horizon', async t => {
  t.setTimeout(1_100_000)
  // Networks are real, because the form offers those that exist.
  const krater = await startKrater(t, { KRATER_COMPUTE_DRIVER: 'noop' })
  const { IDENTITY_URL = '', NETWORK_URL = '' } = apiUrls(krater.environment)
  await addToCatalogue(krater, NETWORK_URL)
  const url = await startHorizon(t, IDENTITY_URL)
  const page = await (await startBrowser(t)).newPage({ viewport: { width: 1400, height: 1000 } })
  page.setDefaultTimeout(60_000)
  page.on('response', response => {
    if (response.status() >= 400) t.fail(`${response.request().method()} ${response.url()}: ${response.status()}`)
  })

  await logIn(t, page, url, krater)
  await page.goto(`${url}/project/load_balancer/`)
  await createLoadBalancer(page)
  const row = page.locator('tr', { has: page.getByRole('link', { name: 'from-horizon' }) })
  await row.getByText('Active', { exact: true }).waitFor()
  // Horizon itself makes the other objects, one after the other.
  const client = await krater.api()
  const list = async (plural: string) =>
    Object(await client.request('load-balancer', 'GET', `/v2/lbaas/${plural}`))[plural]
  await until('the monitor is active', async () => (await list('healthmonitors'))[0]?.provisioning_status === 'ACTIVE')
  t.match(await list('loadbalancers'), [{ provisioning_status: 'ACTIVE', listeners: [{}], pools: [{}] }])

  await row.getByRole('link', { name: 'from-horizon' }).click()
  await page.locator('.breadcrumb .active', { hasText: 'from-horizon' }).waitFor()
  await page.locator('.breadcrumb').getByRole('link', { name: 'Load Balancers' }).click()

  await row.locator('.themable-checkbox label').click()
  await page.getByRole('button', { name: 'Delete Load Balancers' }).click()
  await page.locator('.modal-footer').getByRole('button', { name: 'Delete Load Balancer' }).click()
  // Horizon loads the list anew while it deletes, so the row is gone for a moment at once.
  await until('the load balancer is gone', async () => (await list('loadbalancers')).length === 0)
  await row.waitFor({ state: 'detached' })
})
