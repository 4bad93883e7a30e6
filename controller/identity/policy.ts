import { roleNames, type TokenDocument } from './tokens/document.js'

/** The named parts of a request's path: `{ user_id: '...' }`. */
export type Params = Readonly<Record<string, string>>

/** Whether the bearer of a token may make a request. Everything that a rule needs is in the token and the path. */
export type Rule = (token: TokenDocument, params: Params) => boolean

export const isAdmin = (token: TokenDocument): boolean => roleNames(token).includes('admin')

const isSystemReader = (token: TokenDocument) => token.system !== undefined && roleNames(token).includes('reader')

/** Any good token; what is shown then depends on whose it is. */
export const anyone: Rule = () => true

export const administrators: Rule = token => isAdmin(token)

/** Administrators, and readers of the whole system. */
export const readers: Rule = token => isAdmin(token) || isSystemReader(token)

/** Readers, and the user that the path names. */
export const readersAndUser: Rule = (token, params) =>
  readers(token, params) || (params.user_id ?? params.id) === token.user.id

/** Readers, and who is working in the project that the path names. */
export const readersAndProject: Rule = (token, params) => readers(token, params) || params.id === token.project?.id

/** Readers, and who belongs to the domain that the path names or is working in it. */
export const readersAndDomain: Rule = (token, params) =>
  readers(token, params) || [token.user.domain.id, token.project?.domain.id, token.domain?.id].includes(params.id)

/** The user that the path names, and nobody else: not even an administrator may speak for it. */
export const userAlone: Rule = (token, params) => params.user_id === token.user.id

/** The user that the path names, and administrators. */
export const administratorsAndUser: Rule = (token, params) => isAdmin(token) || params.user_id === token.user.id
