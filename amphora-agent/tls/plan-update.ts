import { STAPLE_SUFFIX } from '../protocol/tls.js'
import type { Manifest } from './files.js'

/** One command for HAProxy's runtime socket. */
export type TlsCommand = {
  text: string
  /** The answer contains it on success. */
  expect: string
}

/** What HAProxy has loaded, or shall load: content by path, and the certificates of lists. */
export type TlsState = Pick<Manifest, 'files' | 'lists'>

/** HAProxy takes a command with its payload into one buffer. */
const MAX_PAYLOAD = 15_000

/** Whether HAProxy can take a file's content at runtime. */
export const fitsRuntime = (content: string): boolean => content.length <= MAX_PAYLOAD

/**
 * The commands that take HAProxy from one state of its TLS files to another, in the order: new certificates, changed
 * files, certificates that leave. No connection notices. Pure.
 * @param contentOf the new content of a file @param stapleOf the OCSP response of a certificate's file
 * @returns why only a reload can do it, as a string
 */
export function planTlsUpdate(
  loaded: TlsState,
  desired: TlsState,
  contentOf: (path: string) => string,
  stapleOf: (path: string) => Buffer | null = () => null,
): TlsCommand[] | string {
  const commands: TlsCommand[] = []
  const isList = (path: string) => path.endsWith('.list')
  const added = Object.keys(desired.files).filter(path => !isList(path) && loaded.files[path] === undefined)
  const changed = changedBetween(loaded, desired)
  const tooLarge = [...added, ...changed].find(path => !fitsRuntime(contentOf(path)))
  if (tooLarge !== undefined) return `${tooLarge} is too long for the runtime socket`
  for (const path of added) {
    // Only the certificates of lists come and go at runtime. All others are named by HAProxy's file.
    commands.push({ text: `new ssl cert ${path}`, expect: 'New empty certificate store' })
    commands.push(...setCommands(path, contentOf(path), stapleOf(path)))
  }
  for (const path of changed) commands.push(...setCommands(path, contentOf(path), stapleOf(path)))
  const gone = new Set<string>()
  for (const [list, certificates] of Object.entries(desired.lists)) {
    const before = loaded.lists[list]
    if (before === undefined) return `${list} is new`
    for (const path of certificates.filter(one => !before.includes(one))) {
      commands.push(addCommand(list, path))
    }
  }
  for (const [list, certificates] of Object.entries(desired.lists)) {
    for (const path of (loaded.lists[list] ?? []).filter(one => !certificates.includes(one))) {
      commands.push(removeCommand(list, path))
      gone.add(path)
    }
  }
  const used = new Set(Object.values(desired.lists).flat())
  for (const path of gone) {
    if (!used.has(path)) commands.push({ text: `del ssl cert ${path}`, expect: 'deleted!' })
  }
  return commands
}

/**
 * Files that HAProxy has loaded with another content, certificates first: once HAProxy 2.6 has exchanged a CA or a
 * revocation list, it cannot exchange the certificates beside it any more.
 */
export function changedBetween(loaded: TlsState, desired: TlsState): string[] {
  const changed = Object.keys(desired.files).filter(
    path => !path.endsWith('.list') && loaded.files[path] !== undefined && loaded.files[path] !== desired.files[path],
  )
  const isCertificate = (path: string) => kindOf(path) === 'cert'
  return [...changed.filter(isCertificate), ...changed.filter(path => !isCertificate(path))]
}

/** By its name: HAProxy keeps certificates, CAs and revocation lists apart. */
export function kindOf(path: string): 'cert' | 'ca-file' | 'crl-file' {
  if (/\.(client-)?ca\.pem$/.test(path)) return 'ca-file'
  return /\.(client-)?crl\.pem$/.test(path) ? 'crl-file' : 'cert'
}

/** Sets a file's content. A certificate loses the OCSP response it had: the commands set that as well. */
export function setCommands(path: string, content: string, staple: Buffer | null): TlsCommand[] {
  const kind = kindOf(path)
  return [
    // HAProxy ends a payload at the first empty line, and names the file that its transaction is for.
    { text: `set ssl ${kind} ${path} <<\n${content.trimEnd()}\n`, expect: `${path}!` },
    ...(staple === null ? [] : [stapleCommand(path, staple)]),
    { text: `commit ssl ${kind} ${path}`, expect: 'Success!' },
  ]
}

export const addCommand = (list: string, path: string): TlsCommand => ({
  text: `add ssl crt-list ${list} ${path}`,
  expect: 'Success!',
})

export const removeCommand = (list: string, path: string): TlsCommand => ({
  text: `del ssl crt-list ${list} ${path}`,
  expect: 'deleted in crtlist',
})

/** OCSP responses by the path of the certificate's file. */
export type Staples = ReadonlyMap<string, Buffer>

/**
 * The commands that take HAProxy from some OCSP responses to others, for files it has loaded. Pure.
 * @param loaded null if unknown
 */
export function planStaples(
  loaded: Staples | null,
  desired: Staples,
  contentOf: (path: string) => string,
): TlsCommand[] {
  const commands: TlsCommand[] = []
  for (const [path, staple] of desired) {
    const before = loaded?.get(path)
    if (before?.equals(staple)) continue
    // A response can replace another, which keeps TLS sessions, but the first one needs the certificate set anew.
    if (before === undefined)
      commands.push(stapleCommand(path, staple), { text: `commit ssl cert ${path}`, expect: 'Success!' })
    else commands.push({ text: `set ssl ocsp-response <<\n${staple.toString('base64')}\n`, expect: 'updated' })
  }
  for (const path of loaded?.keys() ?? []) {
    if (!desired.has(path)) commands.push(...setCommands(path, contentOf(path), null))
  }
  return commands
}

const stapleCommand = (path: string, staple: Buffer): TlsCommand => ({
  text: `set ssl cert ${path}${STAPLE_SUFFIX} <<\n${staple.toString('base64')}\n`,
  expect: `${path}!`,
})
