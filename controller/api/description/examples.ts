import type { Described } from '../described.js'

/**
 * An example of an operation. Words such as `$POOL_ID` in it are variables of the reader's shell.
 */
export type Example = {
  /** The JSON body. */
  json?: unknown
  /** A body that is not JSON. It may not contain single quotes. */
  text?: { type: string; body: string }
  /** Query of the URL, without the question mark. */
  query?: string
  headers?: Readonly<Record<string, string>>
  /** Values of named path segments, where the API's own do not fit. */
  segments?: Readonly<Record<string, string>>
  /** The command of the `openstack` client that does the same, where there is one, without `openstack`. */
  command?: string
}

/** The examples of an API. */
export type Examples = {
  /** The shell variable that holds the URL of the API. */
  urlVariable: string
  /** Values of named path segments. For the others, a variable is named after the segment: see `pathVariable`. */
  segments: Readonly<Record<string, string>>
  /** Operation as the document shows it, such as `GET /v3/users/{id}` -> its example. */
  operations: Readonly<Record<string, Example>>
}

/** An example in the document, in the form of the extension `x-codeSamples`. */
export type CodeSample = { lang: 'Shell'; label: 'curl' | 'openstack'; source: string }

/**
 * The examples of an operation as lines for a shell. Pure.
 * @param path as the document shows it, with `:name` for its parameters
 */
export function codeSamples(
  route: Pick<Described, 'method' | 'answer'> & { open?: boolean },
  path: string,
  examples: Examples,
): CodeSample[] {
  const example = examples.operations[`${route.method} ${path.replace(/:(\w+)/g, '{$1}')}`] ?? {}
  const curl = { lang: 'Shell', label: 'curl', source: curlOf(route, path, example, examples) } as const
  if (example.command === undefined) return [curl]
  return [curl, { lang: 'Shell', label: 'openstack', source: broken(`openstack ${example.command}`) }]
}

const MAX_COLUMNS = 80

/** Breaks a long command before its options. */
function broken(command: string): string {
  const lines = ['']
  for (const part of command.split(/ (?=--)/)) {
    const last = lines.at(-1) ?? ''
    if (last === '' || last.length + part.length < MAX_COLUMNS) lines[lines.length - 1] = `${last} ${part}`.trimStart()
    else lines.push(part)
  }
  return lines.join(' \\\n  ')
}

function curlOf(
  { method, answer, open = false }: Pick<Described, 'method' | 'answer'> & { open?: boolean },
  path: string,
  { json, text, query, headers, segments }: Example,
  examples: Examples,
): string {
  const values = { ...examples.segments, ...segments }
  const filled = path.replace(/:(\w+)/g, (_, name: string) => values[name] ?? `$${pathVariable(name, path)}`)
  const url = `"$${examples.urlVariable}${filled}${query === undefined ? '' : `?${query}`}"`
  // Without a body, only the status shows what happened.
  const shown = method === 'HEAD' ? ['-I'] : answer === undefined ? ['-i'] : []
  const named = method === 'GET' || method === 'HEAD' ? [] : [`-X ${method}`]
  const sent = { ...(open ? {} : { 'X-Auth-Token': '$TOKEN' }), ...headers }
  const lines = [
    ['curl', ...shown, ...named, url].join(' '),
    ...Object.entries(sent).map(([name, value]) => `-H "${name}: ${value}"`),
    ...(text === undefined ? [] : [`-H "Content-Type: ${text.type}"`, `-d '${text.body}'`]),
    ...(json === undefined ? [] : [`--json @- <<END\n${JSON.stringify(json, null, 2)}\nEND`]),
  ]
  return lines.join(' \\\n  ')
}

/** The shell variable for a named segment: `POOL_ID` for `pool`, and for `id` in `/pools/:id`. Pure. */
function pathVariable(name: string, path: string): string {
  const [, collection = ''] = new RegExp(`/([\\w-]+)/:${name}\\b`).exec(path) ?? []
  const owner = name === 'id' ? singular(collection) : name.replace(/_id$/, '')
  return `${owner.replaceAll('-', '_').toUpperCase()}_ID`
}

const singular = (collection: string): string =>
  collection
    .replace(/^amphorae$/, 'amphora')
    .replace(/ies$/, 'y')
    .replace(/s$/, '')
