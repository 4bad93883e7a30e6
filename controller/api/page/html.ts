const ESCAPES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;' }

/** Escapes text between tags. Quotes stay, which would end an attribute. */
export const escapeHtml = (text: string): string => text.replace(/[&<>]/g, character => ESCAPES[character] ?? '')

export const code = (text: string): string => `<code>${escapeHtml(text)}</code>`

/** A word for fragments of URLs: `certificate authorities` -> `certificate-authorities`. */
export const anchorOf = (name: string): string => name.replaceAll(/[^\w]+/g, '-')
