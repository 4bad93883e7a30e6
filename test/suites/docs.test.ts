import type { Browser, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { startBrowser } from '../support/clients/browser.js'
import { documentedOperations } from '../support/clients/documented-operations.js'
import { apiUrls, NOOP_DRIVERS, startKrater } from '../support/worlds/krater.js'

/** Adds a script, a style and an image. @returns the directives of the policy that refuse them */
const HARM = `new Promise(resolve => {
  const directives = []
  document.addEventListener('securitypolicyviolation', ({ effectiveDirective }) => {
    directives.push(effectiveDirective)
    if (directives.length === 3) resolve(directives.sort())
  })
  const add = (name, attributes) => document.body.append(Object.assign(document.createElement(name), attributes))
  add('script', { textContent: 'window.harmed = true' })
  add('style', { textContent: 'body{display:none}' })
  add('img', { src: '/docs' })
})`

/** A page of a description. It fails the test if it complains. */
async function open(t: Test, browser: Browser, url: string): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
  context.setDefaultTimeout(60_000)
  const page = await context.newPage()
  page.on('console', message => t.fail(`${url}: ${message.type()} ${message.text()}`))
  page.on('pageerror', error => t.fail(`${url}: ${error.message}`))
  page.on('request', request => {
    if (!request.url().startsWith(url.replace(/#.*/, ''))) t.fail(`${url} loads ${request.url()}`)
  })
  t.teardown(() => context.close())
  await page.goto(url)
  return page
}

t.test('the pages of the four APIs in a browser', async t => {
  t.setTimeout(1_100_000)
  const krater = await startKrater(t, NOOP_DRIVERS)
  const browser = await startBrowser(t)
  const urls = apiUrls(krater.environment)

  for (const [variable, url] of Object.entries(urls)) {
    await t.test(`${variable}: every operation has an anchor and its examples`, async t => {
      const page = await open(t, browser, `${url}/docs`)
      const shown = await page.locator('.op').evaluateAll(found =>
        found.map(element => ({
          id: element.id,
          examples: [...element.querySelectorAll('pre')].map(pre => pre.textContent),
        })),
      )
      const operations = await documentedOperations(url)
      t.strictSame(
        shown.toSorted((one, other) => (one.id < other.id ? -1 : 1)),
        operations
          .map(({ operationId, curl, command }) => ({
            id: operationId,
            examples: command === undefined ? [curl] : [curl, command],
          }))
          .toSorted((one, other) => (one.id < other.id ? -1 : 1)),
      )
      const setUp = await page.locator('main pre').first().textContent()
      t.notMatch(await page.locator('main').textContent(), /\b(up to null|undefined|NaN)\b|\[object/)
      t.match(setUp, `${variable}=${url}\n`.trim(), 'the first example names the URL')
    })

    await t.test(`${variable}: fits a phone, with everything open`, async t => {
      const page = await open(t, browser, `${url}/docs`)
      await page.evaluate('for (const folded of document.querySelectorAll("details")) folded.open = true')
      for (const width of [320, 360, 390]) {
        await page.setViewportSize({ width, height: 800 })
        t.equal(await page.evaluate('document.documentElement.scrollWidth'), width, `${width} pixels`)
      }
    })

    await t.test(`${variable}: is small`, async t => {
      const answer = await fetch(`${url}/docs`, { headers: { 'Accept-Encoding': 'gzip' } })
      t.ok(Number(answer.headers.get('Content-Length')) < 30_000, 'in transit')
      t.ok((await answer.text()).length < 200_000, 'in the browser')
    })
  }

  const docs = `${urls.LOAD_BALANCER_URL}/docs`

  await t.test('the search finds operations by their words, commands and attributes', async t => {
    const page = await open(t, browser, docs)
    const visible = () => page.locator('.op:visible').evaluateAll(all => all.map(({ id }) => id))
    const everything = (await visible()).length
    await page.keyboard.press('/')
    await page.keyboard.type('Amphora configure')
    t.strictSame(await visible(), ['put_amphorae_by_id_config'])
    t.equal(await page.getByRole('status').textContent(), '1 operation')
    t.equal(await page.locator('h2:visible').count(), 1, 'without the headings of other groups')
    await page.keyboard.press('Enter')
    t.equal(await page.locator('.op[open]').getAttribute('id'), 'put_amphorae_by_id_config', 'Enter opens the first')
    await page.getByRole('searchbox').fill('pool create')
    t.strictSame(await visible(), ['post_pools', 'post_pools_by_pool_members', 'post_healthmonitors'])
    await page.getByRole('searchbox').fill('insert_headers')
    t.ok((await visible()).includes('post_listeners'))
    await page.getByRole('searchbox').fill('no such thing')
    t.equal(await page.getByRole('status').textContent(), '0 operations')
    await page.getByRole('searchbox').fill('')
    t.equal((await visible()).length, everything)
  })

  await t.test('a link to an operation opens it, and can be copied', async t => {
    const page = await open(t, browser, `${docs}#post_listeners`)
    const operation = page.locator('#post_listeners')
    t.not(await operation.getAttribute('open'), null)
    t.ok(await operation.locator('pre').first().isVisible())
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write'])
    const copied = () => page.evaluate('navigator.clipboard.readText()')
    await operation.getByRole('button', { name: 'Copy the link' }).click()
    await operation.getByText('Copied').waitFor()
    t.equal(await copied(), `${docs}#post_listeners`)
    await operation.getByRole('button', { name: 'Copy: With curl' }).click()
    await operation.getByText('Copied').nth(1).waitFor()
    t.equal(await copied(), await operation.locator('pre').first().textContent())
    await page.locator('#get_pools > summary').click()
    await page.waitForURL(`${docs}#get_pools`)
    t.pass('an operation that is opened is in the address')
    await page.locator('#put_listeners_by_id > summary').click()
    await page.locator('#put_listeners_by_id a[href="#Errors"]').click()
    await page.waitForFunction('document.getElementById("Errors").getBoundingClientRect().top < innerHeight')
  })

  await t.test('is for the keyboard and for screen readers too', async t => {
    const page = await open(t, browser, docs)
    await page.keyboard.press('Tab')
    t.equal(await page.locator(':focus').textContent(), 'Skip to the operations')
    await page.keyboard.press('Enter')
    t.equal(await page.locator(':focus').getAttribute('id'), 'main')
    for (const role of ['main', 'navigation', 'search', 'banner'] as const) {
      t.equal(await page.getByRole(role).count(), 1, `has one ${role}`)
    }
    t.ok(await page.getByLabel('Search').count(), 'the search has a label')
    await page.locator('#get_loadbalancers > summary').focus()
    await page.keyboard.press('Enter')
    t.ok(await page.getByRole('button', { name: 'Copy the link to GET /v2/lbaas/loadbalancers List' }).isVisible())
  })

  await t.test('its policy admits no script, style or image of others', async t => {
    const context = await browser.newContext()
    t.teardown(() => context.close())
    const page = await context.newPage()
    await page.goto(docs)
    const refused = await page.evaluate(HARM)
    t.strictSame(refused, ['img-src', 'script-src-elem', 'style-src-elem'])
    t.equal(await page.evaluate('"harmed" in window'), false)
  })
})
