import { Validator } from '@seriousme/openapi-schema-validator'
import type { Test } from 'tap'

type Operation = { operationId?: string; requestBody?: object; 'x-codeSamples'?: { source: string }[] }

type Document = {
  info: { title: string }
  paths: Record<string, Record<string, Operation>>
  components: Record<string, Record<string, object> | undefined>
}

/**
 * Checks an API's public description: a valid OpenAPI 3.1 document with every route, and a page.
 * @param served all routes of the API except those of the description
 */
export async function checkDescription(
  t: Test,
  served: readonly { method: string; path: string }[],
  url: string,
): Promise<void> {
  const answer = await fetch(`${url}/openapi.json`)
  t.equal(answer.status, 200, 'the document needs no token')
  const document = (await answer.json()) as Document
  const validator = new Validator()
  const { valid, errors } = await validator.validate(structuredClone(document))
  t.same(errors, undefined)
  t.equal(valid, true)
  t.equal(validator.version, '3.1')

  const routes = served.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`)
  const described = Object.entries(document.paths).flatMap(([path, item]) =>
    Object.keys(item)
      .filter(method => method !== 'parameters')
      .map(method => `${method.toUpperCase()} ${path}`),
  )
  t.same(described.sort(), [...routes, 'GET /docs', 'GET /openapi.json'].sort(), 'every route is described')
  const ids = Object.values(document.paths).flatMap(item =>
    Object.values(item).flatMap(({ operationId }) => operationId ?? []),
  )
  t.equal(new Set(ids).size, ids.length, 'operation ids are unique')
  const references = JSON.stringify(document).matchAll(/"\$ref":"#\/components\/(\w+)\/([^"]+)"/g)
  for (const [reference, kind = '', name = ''] of references) {
    if (document.components[kind]?.[name] === undefined) t.fail(`${reference} refers to nothing`)
  }

  checkExamples(t, document)

  const page = await fetch(`${url}/docs`)
  t.equal(page.status, 200, 'the page needs no token either')
  t.match(page.headers.get('Content-Type'), 'text/html')
  t.match(page.headers.get('Content-Security-Policy'), "default-src 'none'")
  const text = await page.text()
  t.match(text, document.info.title)
  for (const id of ids) t.ok(text.includes(` id="${id}"`), `the page has an anchor for ${id}`)
  const plain = await fetch(`${url}/docs`, { headers: { 'Accept-Encoding': 'identity' } })
  t.equal(await plain.text(), text, 'a client that cannot decompress reads the same page')
  t.match(
    [page, plain].map(({ headers }) => [
      headers.get('Content-Encoding'),
      /Accept-Encoding/.test(String(headers.get('Vary'))),
    ]),
    [
      ['gzip', true],
      [null, true],
    ],
  )
}

/** Every operation has an example with curl, and one with a body where the operation needs a body. */
export function checkExamples(t: Test, { paths }: Pick<Document, 'paths'>): void {
  const operations = Object.values(paths).flatMap(item => Object.entries(item))
  for (const [, { operationId, requestBody, 'x-codeSamples': samples = [] }] of operations) {
    if (operationId === undefined) continue
    const [curl] = samples
    t.match(curl?.source, /^curl /, `${operationId} has an example`)
    if (requestBody !== undefined) t.match(curl?.source, '--json', `the example of ${operationId} has a body`)
  }
}
