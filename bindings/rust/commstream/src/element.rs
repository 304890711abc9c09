use commstream_sys as ffi;

use crate::buffers::Buffers;

/// A type whose values can be sent: numbers, arrays of them, and what a program implements it for.
///
/// `bool` is none, since a byte that arrives may be neither 0 nor 1: send [`Bool`] or `u8`.
///
/// ```
/// use commstream::{commstream_sys as ffi, Element};
///
/// /// A 2x2 matrix by rows.
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Matrix {
///     rows: [[f64; 2]; 2],
/// }
///
/// // SAFETY: it is four f64 without anything between them.
/// unsafe impl Element for Matrix {
///     const TYPE: ffi::comm_type = ffi::COMM_F64;
///     const COUNT: usize = 4;
/// }
/// ```
///
/// # Safety
///
/// A value is `COUNT` values of the C library's type `TYPE`, without padding, and every pattern of bits of that size is a value. A structure
/// of different types is `COMM_BYTE`, with its size as `COUNT`; it has no padding either.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The number of its type in the C library.
    const TYPE: ffi::comm_type;
    /// How many values of that type it has.
    const COUNT: usize = 1;
}

// SAFETY: an array has no padding.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const TYPE: ffi::comm_type = T::TYPE;
    const COUNT: usize = N * T::COUNT;
}

macro_rules! elements {
    ($($rust:ty => $c:ident),* $(,)?) => {
        $(unsafe impl Element for $rust {
            const TYPE: ffi::comm_type = ffi::$c;
        }
        // SAFETY: the value lies in the plan itself.
        unsafe impl<'a> Buffers<'a> for $rust {
            type View = &'a mut $rust;
            fn view(&'a mut self) -> &'a mut $rust {
                self
            }
        })*
    };
}

elements! {
    i8 => COMM_I8, i16 => COMM_I16, i32 => COMM_I32, i64 => COMM_I64,
    u8 => COMM_U8, u16 => COMM_U16, u32 => COMM_U32, u64 => COMM_U64,
    f32 => COMM_F32, f64 => COMM_F64,
    Bool => COMM_BOOL, Float8E4M3 => COMM_F8E4M3, Float8E5M2 => COMM_F8E5M2,
    Half => COMM_F16, Bfloat16 => COMM_BF16, Complex<f32> => COMM_C64, Complex<f64> => COMM_C128,
    Indexed<f32, i32> => COMM_F32_INDEX, Indexed<f64, i64> => COMM_F64_INDEX,
    Indexed<i32, i32> => COMM_I32_INDEX, Indexed<i64, i64> => COMM_I64_INDEX,
}

#[cfg(target_pointer_width = "64")]
elements! { isize => COMM_I64, usize => COMM_U64 }
#[cfg(target_pointer_width = "32")]
elements! { isize => COMM_I32, usize => COMM_U32 }

/// A truth value: a byte that is 0 or not, for the logical operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bool(pub u8);

/// The bits of an 8-bit float with 4 bits of exponent. It has no infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Float8E4M3(pub u8);

/// The bits of an 8-bit float with 5 bits of exponent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Float8E5M2(pub u8);

/// The bits of an IEEE 754 binary16. Arithmetic is the library's; convert with a crate of your choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Half(pub u16);

/// The bits of a bfloat16: the upper half of an `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Bfloat16(pub u16);

/// A complex number, as in C and Fortran.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex<T> {
    /// The real part.
    pub re: T,
    /// The imaginary part.
    pub im: T,
}

/// A value and what comes with it, for [`Op::MinLoc`] and [`Op::MaxLoc`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Indexed<T, I> {
    /// The value to compare.
    pub value: T,
    /// What comes with it. Of equal values the one with the lower index wins.
    pub index: I,
}

/// How a reduction combines two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Op {
    /// Their sum.
    Sum = ffi::COMM_SUM,
    /// Their product.
    Prod = ffi::COMM_PROD,
    /// The smaller one; NaN if one of them is.
    Min = ffi::COMM_MIN,
    /// The greater one; NaN if one of them is.
    Max = ffi::COMM_MAX,
    /// The sum divided by the number of ranks.
    Avg = ffi::COMM_AVG,
    /// Bitwise and.
    BitAnd = ffi::COMM_BAND,
    /// Bitwise or.
    BitOr = ffi::COMM_BOR,
    /// Bitwise exclusive or.
    BitXor = ffi::COMM_BXOR,
    /// 1 if both are not 0, otherwise 0.
    LogicalAnd = ffi::COMM_LAND,
    /// 1 if one is not 0, otherwise 0.
    LogicalOr = ffi::COMM_LOR,
    /// 1 if exactly one is not 0, otherwise 0.
    LogicalXor = ffi::COMM_LXOR,
    /// The smaller value, with its index.
    MinLoc = ffi::COMM_MINLOC,
    /// The greater value, with its index.
    MaxLoc = ffi::COMM_MAXLOC,
    /// The new value: for windows.
    Replace = ffi::COMM_REPLACE,
    /// The old value: for windows, to read one atomically.
    NoOp = ffi::COMM_NOOP,
}
